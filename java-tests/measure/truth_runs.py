"""Runs a program of the truth suite under a profiler: its profile, the truth that it prints, and the kernel's clocks."""

import os
import pathlib
import re
import subprocess
import tempfile

from measure import shown
from measure.harness import fail, java

TRUTH = re.compile(r"^truth method=(\S+) cpu_ns=(\d+)", re.MULTILINE)


class Run:
    """Facts of one run."""

    def __init__(self, profile, elsewhere, truth, cpu_ns, thread_ns):
        self.profile, self.elsewhere, self.truth = profile, elsewhere, truth
        # CPU time of the process, and of each of its threads by name.
        self.cpu_ns, self.thread_ns = cpu_ns, thread_ns

    def clocks(self, beginnings):
        """Returns the CPU time of threads whose names begin like this."""
        return sum(ns for name, ns in self.thread_ns if name.startswith(beginnings))


class Runner:
    """Runs programs of a folder of classes."""

    def __init__(self, classes, options):
        self.classes, self.options = classes, options

    def profilers(self, jdk, interval, with_lines=False):
        return shown.compared(jdk, interval, self.options.async_profiler, with_lines, self.options.without)

    def run(self, jdk, profiler, program, with_lines=False, reads_clocks=False):
        """Runs `java` with the options, class and arguments of `program`.

        With `reads_clocks` the program prints `ready` when it has done its work and waits for the end of its input, and the
        clocks of all its threads are read in between. `with_lines` also reads the profiler's other exports with lines.
        """
        with tempfile.TemporaryDirectory(prefix="tickwalk-run-") as name:
            folder = pathlib.Path(name)
            command = [str(word) for word in [java(jdk), *profiler.options(folder), "-cp", self.classes, *program]]
            with (folder / "errors").open("w") as errors:
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            output, clocks = [], []
            for line in child.stdout:
                output.append(line)
                if reads_clocks and line == "ready\n":
                    clocks = list(clocks_of(child.pid))
                    child.stdin.close()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            child.stdout.close()
            if child.returncode != 0:
                fail(f"{' '.join(command)[:300]} ended with status {child.returncode}: {(folder / 'errors').read_text()[-1000:]}")
            elsewhere = getattr(profiler, "shown_elsewhere", None) if with_lines else None
            return Run(
                profiler.shown(folder, jdk), elsewhere(folder, jdk) if elsewhere else {},
                {method: int(ns) for method, ns in TRUTH.findall("".join(output))},
                round(1e9 * (usage.ru_utime + usage.ru_stime)), clocks)


def clocks_of(pid):
    """Yields name and CPU time in nanoseconds of each thread of a process."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            yield (task / "comm").read_text().strip(), int((task / "schedstat").read_text().split()[0])
        except OSError:
            # The thread ended meanwhile.
            continue
