"""Runs a JVM under supervision: a crash or a hang leaves what explains it in a folder."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

# Seconds for each tool that looks at a hung JVM, which may hang as well.
TOOL_SECONDS = 60
# Options that put the report of a crash into the folder, and no core file.
CRASH_OPTIONS = ["-XX:ErrorFile={folder}/hs_err.log", "-XX:-CreateCoredumpOnCrash"]


class Child:
    """A JVM whose output, and whatever explains its failure, is kept in `folder`."""

    def __init__(self, launcher, arguments, folder):
        self.folder, self.launcher = pathlib.Path(folder), pathlib.Path(launcher)
        self.hung = False
        options = [option.format(folder=folder) for option in CRASH_OPTIONS]
        self.command = [str(word) for word in [launcher, *options, *arguments]]
        (self.folder / "command").write_text("\n".join(self.command))
        with self.file("stdout").open("w") as out, self.file("stderr").open("w") as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.pid, self.begin = self.process.pid, time.monotonic()

    def file(self, name):
        return self.folder / name

    def text(self, name):
        return self.file(name).read_text(errors="replace")

    def is_running(self):
        return self.process.poll() is None

    def wait(self, seconds):
        """Waits for the end; a JVM that has not ended this many seconds after its start is dumped and killed."""
        try:
            self.process.wait(max(self.begin + seconds - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self.hung = True
            self.dump()
            self.process.kill()
            self.process.wait()

    def dump(self):
        """Writes the stacks of the process: the kernel's, native ones, and those that the VM prints itself."""
        with self.file("kernel-stacks").open("w") as out:
            for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
                for name in ("comm", "wchan", "stack", "status"):
                    with contextlib.suppress(OSError):
                        print(task.name, name, (task / name).read_text(), file=out)
        self._tool("native-stacks", "gdb", "-p", str(self.pid), "-batch", "-ex", "thread apply all backtrace")
        self._tool("java-stacks", self.launcher.parent / "jcmd", str(self.pid), "Thread.print")
        # Without gdb, the report of a crash has the native stack of one thread at least.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSEGV)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(TOOL_SECONDS)

    def _tool(self, name, *command):
        with self.file(name).open("w") as out:
            try:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=TOOL_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                print(error, file=out)

    def complaints(self):
        """Yields a sentence for each failure of the JVM or of the agent in it. Call after the end."""
        status = self.process.returncode
        if self.hung:
            yield f"hang: not finished in time; dumps in {self.folder}"
        elif self.file("hs_err.log").exists() or status < 0:
            yield f"crash: status {status}; {self.folder}"
        elif status != 0:
            yield f"exit code {status}: {self.text('stderr')[-300:]}"
        for line in self.text("stderr").splitlines():
            if line.startswith("tickwalk: "):
                yield f"the agent complains: {line}"


def truth(output):
    """Returns the last line of a workload with its known answer, or None."""
    found = re.findall(r"^truth .*$", output, re.MULTILINE)
    return found[-1] if found else None
