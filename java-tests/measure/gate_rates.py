"""Measures how often the gate fails equal programs, and how often it finds a method that became a tenth slower.

  python3 java-tests/measure gate-rates [--jdk NAME] [--runs N] [--comparisons N] [--side N] [--keep FOLDER] [--fresh]

Records every program --runs times, in turns so that drift of the machine affects all alike: H2, Clojure, a thread pool, and
PlantedRegression with equal stages and with a stage of a fifth that does a tenth more work. Then judges --comparisons pairs
of sides with 'tickwalk diff --fail-above', each of --side runs: random disjoint subsets of the recordings, so that subsets of
different comparisons overlap. 'tickwalk gate' has the same judge. A comparison takes half a second; it takes a thousand of them to tell a rate of 0.5 %
from one above 1 %.

Prints Markdown. Exit code 1 if more than 1 % of the comparisons of equal runs fail, or less than 95 % of the planted growths
are found. Recordings are kept (--keep); an interrupted measurement continues with the same command. --fresh deletes them.
Prerequisites: java-tests/fetch and cargo build --release.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from measure.harness import HERE, binary, compile_workloads, complain, fail, java, program_arguments

# Arguments of tickwalk record and the program. The planted growth needs many samples a run, for which the kernel's tick
# is too coarse.
USUAL = ["--interval", "4ms"]
FINE = ["--interval", "1ms", "--agent-option", "clock=perf"]
# Seconds of CPU time of PlantedRegression, of which each stage takes a fifth.
PLANTED_SECONDS = "7"
EQUAL = ["h2", "clojure", "pool"]
PLANTED = ["planted", "slower"]
GROWN = "PlantedRegression.stageC"
PROGRAM = "the program"
LIMIT = "5%"
# Exit code of a comparison that fails.
FAILED = 3
MOST_ALARMS = 0.01
LEAST_FOUND = 0.95


def programs(scratch):
    """Returns how each program is recorded: options of tickwalk record, and arguments of java."""
    classes = ["-cp", str(compile_workloads(scratch))]
    return {
        **{name: (USUAL, program_arguments(name, "short", scratch)) for name in ("h2", "clojure")},
        "pool": (USUAL, [*classes, "PoolOfTasks", "15"]),
        "planted": (FINE, [*classes, "PlantedRegression", PLANTED_SECONDS]),
        "slower": (FINE, [*classes, "PlantedRegression", PLANTED_SECONDS, "1.1"]),
    }


def record(options, scratch):
    """Records what is missing; returns the recordings by program."""
    tickwalk, library = binary("tickwalk"), binary("libtickwalk.so")
    recorded = programs(scratch)
    recordings = {name: [] for name in recorded}
    options.keep.mkdir(parents=True, exist_ok=True)
    for run in range(options.runs):
        for name, (sampling, program) in recorded.items():
            path = options.keep / f"{name}-{options.jdk}-{run}.tickwalk"
            recordings[name].append(path)
            if path.exists():
                continue
            output = pathlib.Path(scratch) / "run.tickwalk"
            command = [tickwalk, "record", *sampling, "--agent", library, "-o", output, "--", java(options.jdk), *program]
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if ended.returncode != 0:
                fail(f"{name} ended with exit code {ended.returncode}: {ended.stderr[-2000:]}")
            shutil.move(output, path)
            complain(f"{name}, run {run + 1} of {options.runs}")
    return recordings


def judged(before, after):
    """Returns whether a comparison fails, and the names of what has grown."""
    also = [*(f"--also-before={path}" for path in before[1:]), *(f"--also-after={path}" for path in after[1:])]
    command = [binary("tickwalk"), "diff", "--same-work", "--fail-above", LIMIT, "--json", *also, before[0], after[0]]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in (0, FAILED):
        fail(f"tickwalk diff ended with exit code {ended.returncode}: {ended.stderr[-2000:]}")
    verdict = json.loads(ended.stdout)
    grown = [method["name"] for method in verdict["methods"] if method["has_grown"]]
    return ended.returncode == FAILED, grown + [PROGRAM] * verdict["program"]["has_grown"]


def equal_rate(recordings, options, dice):
    """Returns how many comparisons of equal runs fail."""
    failed = 0
    for _ in range(options.comparisons):
        runs = dice.sample(recordings, 2 * options.side)
        failed += judged(runs[:options.side], runs[options.side:])[0]
    return failed


def found_rate(before, after, options, dice):
    """Returns how many comparisons find the planted growth, and how many name anything else as grown."""
    found, others = 0, 0
    for _ in range(options.comparisons):
        _, grown = judged(dice.sample(before, options.side), dice.sample(after, options.side))
        found += GROWN in grown
        others += any(name != GROWN for name in grown)
    return found, others


def report(recordings, options):
    """Prints the rates; returns whether they are as promised."""
    dice = random.Random(1)
    print(f"JDK {options.jdk}, {options.runs} runs of each program, {options.comparisons} comparisons of {options.side} with"
          f" {options.side} runs (random subsets, which overlap between comparisons), limit {LIMIT}.\n")
    print("| comparison | failed | share |\n|---|---|---|")
    is_good = True
    for name in [*EQUAL, "planted"]:
        failed = equal_rate(recordings[name], options, dice)
        is_good &= failed <= MOST_ALARMS * options.comparisons
        print(f"| equal runs of {name} | {failed} | {failed / options.comparisons:.1%} |", flush=True)
    found, others = found_rate(recordings["planted"], recordings["slower"], options, dice)
    is_good &= found >= LEAST_FOUND * options.comparisons
    print(f"| 10 % more in a method of 20 %: found | {found} | {found / options.comparisons:.1%} |")
    print(f"| the same: another row named as well | {others} | {others / options.comparisons:.1%} |")
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", default="21", metavar="NAME", help="a folder of java-tests/.cache/jdk (21)")
    parser.add_argument("--runs", type=int, default=30, metavar="N", help="recordings of each program (30)")
    parser.add_argument("--comparisons", type=int, default=1000, metavar="N", help="comparisons of each kind (1000)")
    parser.add_argument("--side", type=int, default=5, metavar="N", help="runs on each side of a comparison (5)")
    parser.add_argument("--keep", type=pathlib.Path, default=HERE / ".cache/results/gate-rates", metavar="FOLDER",
                        help="where recordings are kept (.cache/results/gate-rates)")
    parser.add_argument("--fresh", action="store_true", help="delete kept recordings first")
    options = parser.parse_args()
    if options.runs < 2 * options.side:
        fail(f"--runs has to be twice --side at least: {2 * options.side}")
    if options.fresh:
        shutil.rmtree(options.keep, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="tickwalk-gate-") as scratch:
        recordings = record(options, scratch)
        return 0 if report(recordings, options) else 1


if __name__ == "__main__":
    sys.exit(main())
