"""What the measuring tools in this folder share: where JDKs, binaries and workloads are, and how to run and compare JVMs.

Environment variables: TICKWALK_JDKS (folder of JAVA_HOMEs, default .cache/jdk), TICKWALK_BIN_DIR (folder of the built
command and libraries, default target/release), CARGO_TARGET_DIR.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent
JDKS = ["11", "17", "21", "25"]
# Real programs, and the oldest JDK that each runs on.
PROGRAMS = {"h2": 11, "clojure": 11, "closure": 21}


def complain(text):
    """Prints a line of progress or a warning to standard error."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


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
    fetched = HERE / ".cache/javac/bin/javac"
    classes = pathlib.Path(scratch) / "classes"
    sources = sorted(HERE.glob("workloads/*.java"))
    subprocess.run([fetched if fetched.exists() else "javac", "--release", "11", "-d", classes, *sources], check=True)
    return classes


def program_arguments(name, size, scratch):
    """Returns what follows `java` for a real program; size is "full" or "short"."""
    if not (HERE / ".cache/programs" / name).is_dir():
        fail(f"the program {name} is missing: run java-tests/fetch --programs")
    script = f". {HERE}/programs/programs.sh; program_arguments {name} {size} {scratch}; " \
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
