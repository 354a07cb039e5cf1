"""Measures how much attaching to a JVM with 10,000 threads delays the start of a thread in it, and what the delay is.

  python3 java-tests/measure attach-delay [--jdk NAME]... [--threads N] [--profiles N] [--rounds N] [--long]

The program starts one thread a millisecond beside N parked ones and measures from Thread.start to the first line of the new
thread. Three kinds of runs alternate: with profiles that start and stop again and again, without, and with a control: other
processes that use the processors as the profiles of the last profiled run did (as many threads, at the same times, for the
same CPU time), and do nothing else. Scheduler events tell how much of each start was waiting for a processor.

Prints Markdown: quantiles of the starts, the number that took more than 5 ms, and the longest parts of starts: waiting for a
processor, behind a thread (of the profiler, say) that waited for a processor while it held a lock, and the rest, which is
what the program would wait for with a processor for each thread. Prints each late start to standard error; with --long each
of more than 1 ms. Ends with 1 if the rest of a start exceeds 5 ms with profiles, or if starts are late more often than with
the control (one-sided, 1 % of chance).
Prerequisites: java-tests/fetch, cargo build --release, and root (tracefs).
"""

import argparse
import collections
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from measure import scheduler_trace
from measure.attaching import Attached
from measure.harness import binary, compile_workloads, complain, fail, java, rotated, spread

PROFILE_SECONDS = 1.0
PAUSE_SECONDS = 0.5
LATE_NS = 5_000_000
# Chance of a failure where profiles and control delay alike.
CHANCE = 0.01
SIDES = ["none", "control", "profiles"]
# Uses CPU time as told: a line with a list of (monotonic time, CPU time) in nanoseconds.
SPINNER = """
import json, sys, time
for at, cpu in json.loads(sys.stdin.readline()):
    time.sleep(max(0, at - time.monotonic_ns()) / 1e9)
    end = time.thread_time_ns() + cpu
    while time.thread_time_ns() < end: pass
"""


class Spinners:
    """Processes that repeat the work of a profiled run, one for each of its threads."""

    def __init__(self, work):
        self.work = work
        self.processes = [subprocess.Popen([sys.executable, "-c", SPINNER], stdin=subprocess.PIPE, text=True) for _ in work]

    def begin(self):
        now = time.monotonic_ns()
        for process, bursts in zip(self.processes, self.work.values()):
            process.stdin.write(json.dumps([(now + after, cpu) for after, cpu in bursts]) + "\n")
            process.stdin.flush()

    def end(self):
        for process in self.processes:
            process.kill()
            process.communicate()


class Bench:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, pathlib.Path(scratch)
        self.agent, self.classes = binary("libtickwalk.so"), compile_workloads(scratch)
        # The work of the last profiled run: bursts of CPU time by the thread's name.
        self.work = {}

    def run(self, jdk, side):
        """Returns the counts of a run, and its long starts."""
        end = self.scratch / "end"
        end.unlink(missing_ok=True)
        child = subprocess.Popen([java(jdk), "-Xmx512m", "-cp", self.classes, "ThreadStarts", str(self.options.threads), end],
                                 stdout=subprocess.PIPE, text=True)
        try:
            parent = int(child.stdout.readline().split()[1])
            jvm = Attached(child.pid, self.agent)
            listener = next(int(task.name) for task in pathlib.Path(f"/proc/{child.pid}/task").iterdir()
                            if (task / "comm").read_text().strip() == "Attach Listener")
            spinners = Spinners(self.work if side == "control" else {})
            try:
                with scheduler_trace.Trace([parent, listener]) as trace:
                    begin = time.monotonic_ns()
                    self.accompany(jvm, side, spinners)
                    until = time.monotonic_ns()
                    end.touch()
                    output = child.communicate()[0]
                    threads, children = trace.read()
            finally:
                spinners.end()
        finally:
            child.kill()
        if side == "profiles":
            self.work = work_of(threads, children, listener, begin, until)
        longs = [scheduler_trace.Start(threads, children, parent, int(first), int(last))
                 for first, last in re.findall(r"^long (\d+) (\d+)$", output, re.MULTILINE) if begin <= int(first) < until]
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", output)} | {"long": longs}

    def accompany(self, jvm, side, spinners):
        if side == "profiles":
            for _ in range(self.options.profiles):
                time.sleep(PAUSE_SECONDS)
                jvm.start(f"{self.scratch}/out.tickwalk")
                time.sleep(PROFILE_SECONDS)
                jvm.stop()
            return
        spinners.begin()
        time.sleep(self.options.profiles * (PAUSE_SECONDS + PROFILE_SECONDS))
        for process in spinners.processes:
            process.wait()


def work_of(threads, children, listener, begin, until):
    """Returns the bursts of CPU time of the thread that attaches and of those it starts, by name, as (time since begin, CPU time)."""
    work, pending = collections.defaultdict(list), [listener]
    while pending:
        tid = pending.pop()
        pending += [child for _, child in children[tid]]
        work[threads[tid].comm] += [(at - begin, cpu) for at, cpu in threads[tid].bursts(begin, until)]
    return {name: sorted(bursts) for name, bursts in work.items() if bursts}


def is_more(late, starts, control_late, control_starts):
    """Returns whether so many late starts are more than chance beside those of the control (binomial, given their sum)."""
    total, share = late + control_late, starts / (starts + control_starts)
    tail = sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(late, total + 1))
    return late > 0 and tail < CHANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--profiles", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    if reason := scheduler_trace.why_not():
        fail(reason)
    failures = []
    print("| JDK | beside | CPU time, s | starts | p50, us | p99, us | max, ms | above 5 ms | longest: waiting, ms | behind, ms |"
          " rest, ms |")
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-attach-delay-") as scratch:
        for jdk in options.jdk or ["17", "25"]:
            bench, runs = Bench(options, scratch), {side: [] for side in SIDES}
            # Its work is what the first control repeats.
            bench.run(jdk, "profiles")
            used = {"none": 0, "control": 0, "profiles": 0}
            for turn in range(options.rounds):
                for side in rotated(SIDES, turn):
                    one = bench.run(jdk, side)
                    runs[side].append(one)
                    if side != "none":
                        used[side] += sum(cpu for bursts in bench.work.values() for _, cpu in bursts) / 1e9
                    for start in one["long"]:
                        if options.long or start.total > LATE_NS:
                            after = "" if start.total <= LATE_NS else " (late)"
                            complain(f"JDK {jdk}, {side}: start of {start.total / 1e6:.1f} ms{after}: {start}")
                complain(f"JDK {jdk}, round {turn + 1} of {options.rounds}")
            late = {side: [start for one in runs[side] for start in one["long"] if start.total > LATE_NS] for side in SIDES}
            starts = {side: sum(one["starts"] for one in runs[side]) for side in SIDES}
            for side in SIDES:
                longs = [start for one in runs[side] for start in one["long"]]
                parts = [lambda start: start.waiting, lambda start: sum(start.behind.values()), lambda start: start.rest]
                longest = [f"{max(map(part, longs), default=0) / 1e6:.1f}" for part in parts]
                middle = [spread([one[key] for one in runs[side]], str).split(" | ")[0] for key in ("p50_us", "p99_us")]
                print(f"| {jdk} | {side} | {used[side]:.2f} | {starts[side]} | {' | '.join(middle)} |"
                      f" {max(one['max_us'] for one in runs[side]) / 1e3:.1f} | {len(late[side])} |"
                      f" {' | '.join(longest)} |", flush=True)
            failures += [f"JDK {jdk}: {start.rest / 1e6:.1f} ms of a start are no wait for a processor: {start}"
                         for start in late["profiles"] if start.rest > LATE_NS]
            if is_more(len(late["profiles"]), starts["profiles"], len(late["control"]), starts["control"]):
                failures.append(f"JDK {jdk}: {len(late['profiles'])} late starts with profiles, {len(late['control'])} with the control")
    if failures:
        fail("\n".join(failures))


if __name__ == "__main__":
    main()
