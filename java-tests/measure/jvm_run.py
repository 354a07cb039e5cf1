"""Runs one JVM under a profiler and measures by the operating system: CPU time, peak memory, the profiler's threads."""

import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time

from measure.harness import fail

# Seconds between two looks at the threads. A thread's CPU time after the last look is missed, so these figures are
# lower bounds; they show whether a profiler's own account is too low.
LOOK_SECONDS = 0.5


class ThreadWatch(threading.Thread):
    """Reads the CPU time of a process's threads with certain names until it is stopped."""

    def __init__(self, pid, beginnings):
        super().__init__(daemon=True)
        self.folder, self.beginnings = pathlib.Path(f"/proc/{pid}/task"), beginnings
        self.ended = threading.Event()
        self.cpu_ns = {}

    def run(self):
        while self.beginnings and not self.ended.wait(LOOK_SECONDS):
            try:
                for task in self.folder.iterdir():
                    self.look(task)
            except OSError:
                continue

    def look(self, task):
        try:
            if (task / "comm").read_text().startswith(self.beginnings):
                self.cpu_ns[task.name] = int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            # The thread ended meanwhile.
            pass

    def stop(self):
        self.ended.set()
        self.join()
        return sum(self.cpu_ns.values())


def measure(launcher, profiler, program, drive=None):
    """Runs a program to its end; returns its costs and the profiler's report.

    `drive(child, output)` acts on a server while it runs and returns more results; the server's standard input is then
    closed. A program that prints `work=N` has done N units of work, otherwise all runs do the same.
    """
    with tempfile.TemporaryDirectory(prefix="tickwalk-run-") as name:
        folder = pathlib.Path(name)
        output, errors = folder / "output", folder / "errors"
        command = [str(word) for word in [launcher, *profiler.options(folder), *program]]
        begin = time.monotonic()
        with output.open("w") as out, errors.open("w") as err:
            child = subprocess.Popen(command, stdin=subprocess.PIPE if drive else subprocess.DEVNULL, stdout=out, stderr=err)
        watch = ThreadWatch(child.pid, profiler.threads)
        watch.start()
        try:
            driven = drive(child, output) if drive else {}
        finally:
            if drive:
                child.stdin.close()
            _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        seen_ns = watch.stop()
        text = output.read_text(errors="replace") + errors.read_text(errors="replace")
        if child.returncode != 0:
            fail(f"{' '.join(command)[:300]} ended with status {child.returncode}: {text[-1000:]}")
        work = re.search(r"\bwork=(\d+)", text)
        return {
            "cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss * 1024, "wall": wall,
            "work": int(work[1]) if work else 1, "seen_ns": seen_ns, **driven, **profiler.report(folder, text),
        }
