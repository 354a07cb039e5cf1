"""Shared by the programs in this folder: where JDKs, binaries and workloads are, and how to run and compare JVMs.

Environment variables: TICKWALK_JDKS (folder of JAVA_HOMEs, default .cache/jdk), TICKWALK_BIN_DIR (folder of the built
command and libraries, default target/release), CARGO_TARGET_DIR.
"""

import hashlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent
JDKS = ["11", "17", "21", "25"]
# Real programs, and the oldest JDK that each runs on.
PROGRAMS = {"h2": 11, "clojure": 11, "closure": 21, "spark": 17, "spark3": 11}
# What brings programs that a plain java-tests/fetch leaves out.
FETCHED_BY = {"closure": "--programs", "spark": "--spark", "spark3": "--spark3", "tomcat": "--web"}


def complain(text):
    """Prints a line of progress or a warning to standard error."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def rare_events(share, count):
    """The number of events that is exceeded by chance once in a million times, where each of `count` trials has this small
    `share` of events (Poisson); as `rare_events` in harness/tolerance.rs."""
    mean = share * count
    # Logarithms, because the probability of no event is no number any more from a mean of 745 on.
    probability_log = -mean
    above, events = 1 - math.exp(probability_log), 0
    while above >= 1e-6:
        events += 1
        probability_log += math.log(mean / events)
        above -= math.exp(probability_log)
    return events


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def jdk_folder():
    return pathlib.Path(os.environ.get("TICKWALK_JDKS", HERE / ".cache/jdk"))


def java(jdk):
    """Returns the `java` launcher of a JDK."""
    launcher = jdk_folder() / jdk / "bin/java"
    if not launcher.exists():
        fail(f"no {launcher}: run java-tests/fetch")
    return launcher


def target_folder():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))


def binary(name, folder="release", build="cargo build --release"):
    """Returns the path of a build output; `build` is the command that makes it."""
    path = pathlib.Path(os.environ.get("TICKWALK_BIN_DIR", target_folder() / folder)) / name
    if not path.exists():
        fail(f"no {path}: run {build}")
    return path.resolve()


def compile_workloads(scratch):
    """Compiles all workloads; returns the folder of classes."""
    classes = pathlib.Path(scratch) / "classes"
    compile_java(sorted(HERE.glob("workloads/*.java")), classes)
    return classes


def compile_java(sources, classes, *options):
    """Compiles sources for JDK 11 and newer into a folder. C2 is off: it ends before optimised code pays off."""
    fetched = HERE / ".cache/javac/bin/javac"
    compiler = fetched if fetched.exists() else "javac"
    subprocess.run([compiler, "-J-XX:TieredStopAtLevel=1", "--release", "11", *options, "-d", classes, *sources], check=True)


def program_folder(name):
    """Returns the folder of a fetched program's jars."""
    folder = HERE / ".cache/programs" / name
    if not folder.is_dir():
        fail(f"the program {name} is missing: run java-tests/fetch {FETCHED_BY.get(name, '')}".rstrip())
    return folder


def program_arguments(name, size, scratch):
    """Returns what follows `java` for a real program; size is "full" or "short"."""
    program_folder(name)
    script = f". {HERE}/workloads/programs/programs.sh; program_arguments {name} {size} {scratch}; " \
             'printf "%s\\0" "${program_command[@]}"'
    return subprocess.run(["bash", "-euc", script], check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def run_measured(command):
    """Runs a JVM to its end; returns its CPU seconds, peak resident bytes and wall seconds."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    if status != 0:
        fail(f"{command} ended with status {status}: {errors.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, wall


def rotated(names, turn):
    """Returns the names in another order for each turn, so that drift of the machine affects all alike.

    Each name comes first equally often, and every second turn runs backwards.
    """
    first = turn // 2 % len(names)
    order = [*names[first:], *names[:first]]
    return order if turn % 2 == 0 else order[::-1]


def interleaved(count, name, run):
    """Calls `run(False)` and `run(True)` `count` times; returns the pairs of results.

    Every second pair runs in reverse order, so that drift of the machine affects both alike.
    """
    pairs = []
    for pair in range(count):
        order = [False, True] if pair % 2 == 0 else [True, False]
        measured = {profiled: run(profiled) for profiled in order}
        pairs.append((measured[False], measured[True]))
        complain(f"{name}, pair {pair + 1} of {count}")
    return pairs


def spread(values, text):
    """Returns the cells median, middle half and range of a table row; `text` formats one value."""
    values = sorted(values)
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    low, middle, high = (text(value) for value in quartiles)
    return f"{middle} | {low} .. {high} | {text(values[0])} .. {text(values[-1])}"


# Resamples of a bootstrap, and the share of them that an interval holds.
RESAMPLES = 5000
CONFIDENCE = 0.95


def median_interval(values):
    """Returns the median and the ends of its confidence interval, by the bootstrap; the same values give the same interval."""
    values = list(values)
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    beyond = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    return statistics.median(values), medians[beyond], medians[-1 - beyond]


def with_interval(values, text):
    """Returns a median with its confidence interval as text; `text` formats one value."""
    middle, low, high = (text(value) for value in median_interval(values))
    return f"{middle} ({low} .. {high})"


class Journal:
    """Results of single runs, one JSON object a line, so that an interrupted measurement can be continued.

    A result is used again only if its key is equal: settings, the round, and the identity of the libraries measured.
    """

    def __init__(self, path, fresh):
        self.path = pathlib.Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            self.path.unlink(missing_ok=True)
        self.results = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                entry = json.loads(line)
                self.results[self._text(entry["key"])] = entry["result"]
            except (ValueError, KeyError):
                # The line that was being written when a run was interrupted.
                complain(f"{self.path} has a damaged line, which is ignored")

    @staticmethod
    def _text(key):
        return json.dumps(key, sort_keys=True)

    def measure(self, key, run):
        """Returns the known result of `key`, else that of `run()`, which is then kept."""
        text = self._text(key)
        if text not in self.results:
            self.results[text] = json.loads(json.dumps(run()))
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "result": self.results[text]}) + "\n")
        return self.results[text]


def identity(path):
    """Returns an identifier of a build of a library."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]
