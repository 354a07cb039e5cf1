"""Runs real programs and churn workloads at 1 ms for hours: on every JDK, with every collector and compiler mode.

  python3 java-tests/measure soak [--jdk NAME]... [--flags NAME]... [--program NAME]... [--minutes M] [--jobs N] [--timeout S]
                  [--folder DIR] [--seconds S] [--size short|full]
  python3 java-tests/measure soak --hours H [--jdk NAME] [--flags NAME] [--folder DIR]

A cell is one JDK with one set of flags. For M minutes (30 by default) its programs run one after the other: H2, Clojure and
the workloads that load and unload classes, start threads, deoptimise, redefine, allocate and use virtual threads. Every
second program is profiled from its start (agent, file), the others by attaching and stopping again and again (command,
collector). A cell fails if a JVM crashes, hangs (not finished after S seconds, 900 by default), ends with another exit code
than 0, or if the agent complains, or an account does not close (java-tests/measure/account.py).

Finished cells are kept in DIR/cells.jsonl (DIR: target/soak) and not run again with the same binaries and settings, so an
interrupted run continues where it stopped. What explains a failure is kept in DIR/failures: output, hs_err file, recording,
summary; of a hung JVM the stacks by the kernel, gdb and jcmd. Prints Markdown, and ends with 1 if a cell failed or is
missing. Cells that a build of a JDK does not offer are named and skipped.

With --hours one JVM under churn runs that long (java-tests/measure/long_run.py); repeat --minutes 0.2 --jobs 2 for a quick look at
all cells. Prerequisites: java-tests/fetch --programs and cargo build --release; TICKWALK_BIN_DIR names other binaries.
"""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

from measure import account
from measure import long_run
from measure.harness import JDKS, PROGRAMS, Journal, binary, compile_workloads, complain, fail, identity, java, program_arguments, target_folder
from measure.profilers import feature
from measure.supervised import Child, truth

# Workload, the oldest JDK it runs on, and its arguments.
WORKLOADS = {
    "ClassChurn": (11, ["{seconds}", "12", "3"]), "ManyShortThreads": (11, ["{seconds}"]), "DeoptStorm": (11, ["{seconds}"]),
    "Redefinition": (11, ["{seconds}", "12", "3"]), "AllocHeavy": (11, ["{seconds}"]), "VirtualThreads": (21, ["{seconds}"]),
    "Exceptions": (11, ["{seconds}"]), "DeepRecursion": (11, ["{seconds}"]), "RegexStrings": (11, ["{seconds}"]),
    "ContendedMonitors": (21, ["10000"]),
}
REAL = ["h2", "clojure"]
# Programs that live with a collector that never frees anything.
ALLOCATE_LITTLE = ["ManyShortThreads", "DeepRecursion"]
EXPERIMENTAL = "-XX:+UnlockExperimentalVMOptions"
# JVM options by name, with the JDKs that have them. A build may lack a collector all the same.
FLAGS = {
    "Serial": (11, 99, ["-XX:+UseSerialGC"]),
    "Parallel": (11, 99, ["-XX:+UseParallelGC"]),
    "G1": (11, 99, ["-XX:+UseG1GC"]),
    # Experimental in 11; always with generations from 24 on.
    "ZGC": (11, 99, [EXPERIMENTAL, "-XX:+UseZGC"]),
    "ZGC-generational": (21, 23, ["-XX:+UseZGC", "-XX:+ZGenerational"]),
    "Shenandoah": (11, 99, [EXPERIMENTAL, "-XX:+UseShenandoahGC"]),
    "Shenandoah-generational": (24, 99, [EXPERIMENTAL, "-XX:+UseShenandoahGC", "-XX:ShenandoahGCMode=generational"]),
    "Epsilon": (11, 99, [EXPERIMENTAL, "-XX:+UseEpsilonGC", "-Xmx4g"]),
    "Xint": (11, 99, ["-Xint"]),
    "Xcomp": (11, 99, ["-Xcomp"]),
    "C1": (11, 99, ["-XX:TieredStopAtLevel=1"]),
    "Compact": (25, 99, ["-XX:+UseCompactObjectHeaders"]),
}
# The heap where a program does not set one, small enough for several JVMs at once and for frequent collections.
HEAP = ["-Xmx512m"]
INTERVAL = "1ms"
# Most seconds of a profile of a running JVM, and the longest time that one may take with its report.
PROFILE_SECONDS = 3
ATTACH_SECONDS = 180
# Answers of `tickwalk attach` to a JVM that is being created; the last one has its cause in the JVM's output.
STARTING = ("does not handle SIGQUIT", "has no libjvm.so", "return code -1;")
STILL_STARTING = "tickwalk: the JVM is still starting; try again"
# Stacks that end there are whole but for frames that are documented as missing.
NOT_CUT = ("end_of_stack", "end_of_continuation", "end_past_thaw", "continuation_barrier")
# Seconds within which a JVM that could not be attached to must have ended.
END_SECONDS = 20


class Cell:
    """The runs of one JDK with one set of flags."""

    def __init__(self, jdk, flags, options, place):
        self.jdk, self.flags, self.options = jdk, flags, options
        self.scratch, self.classes, self.tickwalk, self.agent = place
        self.programs = [name for name in options.program or programs(jdk, flags) if name in programs(jdk, flags)]
        self.result = {"programs": {}, "profiles": 0, "samples": 0, "cut": 0, "kernel_ns": 0, "lost_ns": 0, "before_ns": 0,
                       "crashes": 0, "hangs": 0, "complaints": []}

    def run(self):
        end, begin = time.monotonic() + 60 * self.options.minutes, time.time()
        # Each cell begins with another program, so that a short run of all cells has every program.
        first = (JDKS.index(self.jdk) if self.jdk in JDKS else 0) + list(FLAGS).index(self.flags)
        for turn in itertools.count(first):
            name = self.programs[turn % len(self.programs)]
            # Both modes for each program, also where their number is even.
            attaching = (turn + turn // len(self.programs)) % 2 == 1
            self.run_program(name, attaching, turn)
            if time.monotonic() >= end:
                break
        self.result["minutes"] = (time.time() - begin) / 60
        outcome = "FAILED" if self.result["complaints"] else "passed"
        complain(f"JDK {self.jdk} {self.flags}: {outcome}, {self.result['profiles']} profiles")
        return self.result

    def arguments(self, name, folder):
        """Returns what follows the options of the JVM."""
        if name in REAL:
            return program_arguments(name, self.options.size, folder)
        words = [word.format(seconds=self.options.seconds) for word in WORKLOADS[name][1]]
        return ["-Djdk.attach.allowAttachSelf=true", "-cp", self.classes, name, *words]

    def run_program(self, name, attaching, turn):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch, prefix=f"{self.jdk}-{self.flags}-{name}-"))
        recording = folder / "recording.tickwalk"
        loaded = [] if attaching else [f"-agentpath:{self.agent}=interval={INTERVAL},file={recording}"]
        heap = [] if "Epsilon" in self.flags else HEAP
        child = Child(java(self.jdk), [*loaded, *heap, *FLAGS[self.flags][2], *self.arguments(name, folder)], folder)
        if attaching:
            found = self.attach_repeatedly(child, random.Random(turn))
            child.wait(self.options.timeout)
        else:
            child.wait(self.options.timeout)
            found = [] if child.hung or child.process.returncode else self.check(lambda: account.of_recording(self.tickwalk, recording))
        # A JVM that is attached to very early says so, and the command is repeated.
        failures = [text for text in child.complaints() if not (attaching and STILL_STARTING in text)]
        if not failures and name in WORKLOADS and not truth(child.text("stdout")):
            failures.append("the workload did not print its answer")
        self.result["hangs"] += child.hung
        self.result["crashes"] += any(text.startswith("crash") for text in failures)
        self.result["programs"][name] = self.result["programs"].get(name, 0) + 1
        self.settle(f"{name} {'attached' if attaching else 'loaded'}", folder, failures + found)

    def settle(self, what, folder, failures):
        """Keeps the folder of a failure and removes that of a success."""
        if failures:
            kept = self.options.folder / "failures" / folder.name
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, kept)
            for failure in failures:
                self.result["complaints"].append(f"{what}: {failure} ({kept})")
                complain(f"JDK {self.jdk} {self.flags} {what}: {failure}")
        shutil.rmtree(folder, ignore_errors=True)

    def check(self, read):
        """Adds a profile to the result; returns what is wrong with its account."""
        try:
            summary = read()
        except (OSError, ValueError) as error:
            return [f"no summary: {error}"]
        result, cpu = self.result, summary["cpu_ns"]
        result["profiles"] += 1
        result["samples"] += summary["samples"]
        result["cut"] += sum(count for reason, count in summary["stops"].items() if reason not in NOT_CUT)
        result["kernel_ns"] += cpu["kernel"]
        # Each thread may lose one sample when the profile ends.
        result["lost_ns"] += sum(ns for cause, ns in cpu["lost"].items() if cause != "stopping")
        result["before_ns"] += cpu["before_timer"]
        return list(account.complaints(summary))

    def attach_repeatedly(self, child, dice):
        """Profiles a running JVM again and again until it ends; returns what went wrong."""
        found, profiles = [], 0
        while child.is_running() and time.monotonic() - child.begin < self.options.timeout:
            summary = child.file(f"summary-{profiles}.json")
            recording = child.file(f"recording-{profiles}.tickwalk")
            command = [self.tickwalk, "attach", "--agent", self.agent, "--interval", INTERVAL, "--summary", summary,
                       "-o", recording, "--duration", f"{dice.randint(1, PROFILE_SECONDS)}s", str(child.pid)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ATTACH_SECONDS)
            except subprocess.TimeoutExpired:
                # The JVM hangs as well, and is dumped.
                child.wait(0)
                return [*found, f"tickwalk attach did not end within {ATTACH_SECONDS} s"]
            if done.returncode == 0:
                wrong = self.check(lambda: json.loads(summary.read_text()))
                found += [f"profile {profiles}: {text}" for text in wrong]
                profiles += 1
                if not wrong:
                    for file in child.folder.glob(f"*-{profiles - 1}.*"):
                        file.unlink()
            elif profiles == 0 and any(text in done.stderr for text in STARTING):
                time.sleep(0.05)
            elif not self.ends(child):
                return [*found, f"tickwalk attach: exit {done.returncode}: {done.stderr[-500:]}"]
        return found

    @staticmethod
    def ends(child):
        """Returns True if the JVM ends soon: it could not be attached to because it is ending."""
        try:
            child.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def programs(jdk, flags):
    """Returns the programs of a cell."""
    known = [*REAL, *(name for name, (oldest, _) in WORKLOADS.items() if oldest <= feature(jdk))]
    return [name for name in known if flags != "Epsilon" or name in ALLOCATE_LITTLE]


def offered(jdk, flags):
    """Returns True if the JVM starts with these flags."""
    return subprocess.run([java(jdk), *FLAGS[flags][2], "-version"], capture_output=True).returncode == 0


def cells(options):
    """Returns the cells to run as pairs of JDK and flags; names those that a build does not offer."""
    found = []
    for jdk, flags in itertools.product(options.jdk or JDKS, options.flags or FLAGS):
        oldest, newest, _ = FLAGS[flags]
        if not oldest <= feature(jdk) <= newest:
            continue
        if not offered(jdk, flags):
            complain(f"SKIPPED JDK {jdk} {flags}: this build does not start with {' '.join(FLAGS[flags][2])}")
        elif programs(jdk, flags):
            found.append((jdk, flags))
    return found


def table(results):
    """Yields the lines of the table, and a line for each failure."""
    yield "| JDK | flags | minutes | programs | profiles | samples | CPU s | lost | cut | crashes | hangs | complaints |"
    yield "|---" * 12 + "|"
    for (jdk, flags), cell in results.items():
        if cell is None:
            yield f"| {jdk} | {flags} | missing |" + " |" * 9
            continue
        seconds, lost = (cell["kernel_ns"] + cell["before_ns"]) / 1e9, cell["lost_ns"] / max(cell["kernel_ns"], 1)
        yield (f"| {jdk} | {flags} | {cell['minutes']:.1f} | {sum(cell['programs'].values())} | {cell['profiles']} |"
               f" {cell['samples']} | {seconds:.0f} | {lost:.3%} | {cell['cut'] / max(cell['samples'], 1):.2%} |"
               f" {cell['crashes']} | {cell['hangs']} | {len(cell['complaints'])} |")
    yield ""
    for (jdk, flags), cell in results.items():
        for text in cell["complaints"] if cell else []:
            yield f"- JDK {jdk} {flags}: {text}"


def run_cells(options):
    tickwalk, agent = binary("tickwalk"), binary("libtickwalk.so")
    builds = [identity(tickwalk), identity(agent)]
    options.folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.folder / "cells.jsonl", fresh=False)
    results = dict.fromkeys(cells(options))
    with tempfile.TemporaryDirectory(prefix="tickwalk-soak-") as scratch:
        place = (scratch, compile_workloads(scratch), tickwalk, agent)

        def run(jdk, flags):
            key = {"jdk": jdk, "flags": flags, "minutes": options.minutes, "seconds": options.seconds, "size": options.size,
                   "programs": options.program, "builds": builds}
            results[jdk, flags] = journal.measure(key, Cell(jdk, flags, options, place).run)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            running = [pool.submit(run, *cell) for cell in results]
            try:
                for future in running:
                    future.result()
            except KeyboardInterrupt:
                # The cells that run go on to their end; the others are missing.
                pool.shutdown(cancel_futures=True)
    print("\n".join(table(results)))
    failed = [cell for cell, result in results.items() if result is None or result["complaints"]]
    if failed or not results:
        fail(f"{len(failed)} of {len(results)} cells failed or are missing")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--flags", action="append", choices=FLAGS)
    parser.add_argument("--program", action="append", choices=[*REAL, *WORKLOADS])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=8, help="CPU time of a workload")
    parser.add_argument("--size", choices=["short", "full"], default="short", help="of the real programs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--folder", type=pathlib.Path, default=target_folder() / "soak")
    parser.add_argument("--hours", type=float)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.hours:
        return long_run.run(options, FLAGS)
    run_cells(options)


if __name__ == "__main__":
    main()
