#!/usr/bin/env python3
"""Runs Java programs under the agent and reports how many stacks are whole; called by java-tests/aarch64.

  subset.py emulated [JDK...]                           the agent for aarch64, under emulation
  subset.py native FOLDER-OF-LIBRARY [JAVA_HOME...]     the agent of this machine

A stack is whole if its walk ends at a root. Each line has the JDK, the program, the samples, the share of whole stacks, the
reasons of the others, the median of the counter's ticks in the handler, and whether the account closes. Exit code 1 if a share
or an account is not as promised.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import account
from harness import compile_workloads

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = HERE / ".cache/aarch64"
JDKS = ["11", "17", "21", "25"]
# Name, first release, JVM options, class, arguments. An emulated second is a tenth of a real one.
# {panama} is a native library.
PROGRAMS = [
    ("two methods 3:1", 11, [], "TwoMethods", ["1"]),
    ("interpreted only", 11, ["-Xint"], "TwoMethods", ["1"]),
    ("deep recursion", 11, [], "DeepRecursion", ["1"]),
    ("inlined chain", 11, [], "InlinedChain", ["1"]),
    ("lambdas", 11, [], "Lambdas", ["1"]),
    ("native frames", 11, [], "NativeHeavy", ["1"]),
    ("exceptions", 11, [], "Exceptions", ["1"]),
    ("deoptimisation", 11, [], "DeoptStorm", ["1"]),
    ("virtual threads", 21, [], "VirtualThreads", ["1"]),
    ("foreign functions", 21, ["--enable-native-access=ALL-UNNAMED", "--enable-preview"], "Panama", ["1", "{panama}"]),
]
# How the native libraries of tests are compiled (java-tests/src/native_library.rs).
C_OPTIONS = ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
# All samples of a JDK together. A single program has some hundred samples.
MIN_SHARE = 0.995
# heavy / light: the JIT of the emulator moves the true ratio a little; the program prints it.
RATIO = (2.0, 4.5)
SECONDS = 240


class Emulated:
    """The agent for aarch64 on an emulated processor."""

    launcher = [CACHE / "qemu/usr/bin/qemu-aarch64", "-L", CACHE / "guest"]
    compiler = CACHE / "bin/cc"
    library = ROOT / "target/aarch64/aarch64-unknown-linux-gnu/debug/libtickwalk.so"

    def __init__(self, jdks):
        self.jdks = {int(jdk): CACHE / f"jdk/{jdk}" for jdk in jdks or JDKS}
        places = [ROOT / "target/release/tickwalk", ROOT / "target/debug/tickwalk", shutil.which("tickwalk")]
        self.tickwalk = next((str(place) for place in places if place and pathlib.Path(place).exists()), None)
        if self.tickwalk is None:
            sys.exit("aarch64: no tickwalk command for this machine; run cargo build")


class Native:
    """The agent of this machine; JDKs by their homes."""

    launcher = []
    compiler = shutil.which("cc")

    def __init__(self, folder, homes):
        self.library = pathlib.Path(folder).resolve() / "libtickwalk.so"
        self.tickwalk = str(pathlib.Path(folder).resolve() / "tickwalk")
        for file in (self.library, self.tickwalk):
            if not pathlib.Path(file).exists():
                sys.exit(f"aarch64: no {file}; name the folder of libtickwalk.so and tickwalk")
        known = pathlib.Path(os.environ.get("TICKWALK_JDKS", HERE / ".cache/jdk"))
        homes = [pathlib.Path(home) for home in homes] or [known / jdk for jdk in JDKS if (known / jdk).exists()]
        if not homes:
            sys.exit("aarch64: no JDK; name JAVA_HOMEs, or run java-tests/fetch")
        self.jdks = {release_of(home): home for home in homes}


def release_of(home):
    """Returns the feature release of a JDK."""
    release = home / "release"
    found = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.exists() else None
    if not found:
        sys.exit(f"aarch64: {home} is no JAVA_HOME of JDK 11 or newer: it has no file `release` with a version")
    return int(found[1])


def native_library(machine, scratch, name):
    """Compiles a native library of the workloads; returns None without a compiler."""
    if not machine.compiler:
        return None
    library = scratch / f"lib{name}.so"
    source = HERE / f"workloads/native/{name}.c"
    subprocess.run([machine.compiler, *C_OPTIONS, "-o", library, source], check=True)
    return str(library)


def run(machine, home, program, classes, recording, panama):
    _, _, options, name, arguments = program
    arguments = [argument.format(panama=panama) for argument in arguments]
    agent = f"-agentpath:{machine.library}=file={recording},interval=4ms"
    command = [*map(str, machine.launcher), str(home / "bin/java"), agent, *options, "-cp", str(classes), name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode != 0:
        raise ValueError(f"exit {done.returncode}: {(done.stdout + done.stderr)[-300:]}")


def self_time(command, recording):
    """Returns the self CPU time of each method of TwoMethods."""
    done = subprocess.run([command, "export", recording, "-o", f"{recording}.collapsed"], capture_output=True)
    found = collections.Counter()
    if done.returncode == 0:
        for line in pathlib.Path(f"{recording}.collapsed").read_text(errors="replace").splitlines():
            stack, _, weight = line.rpartition(" ")
            found[stack.rpartition(";")[2]] += int(weight)
    return found


def main():
    if sys.argv[1] == "emulated":
        machine = Emulated(sys.argv[2:])
    else:
        machine = Native(sys.argv[2], sys.argv[3:])
    bad = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        classes = compile_workloads(scratch)
        panama = native_library(machine, scratch, "panama")
        for jdk, home in sorted(machine.jdks.items()):
            requests, failed = 0, collections.Counter()
            for program in PROGRAMS:
                if jdk < program[1]:
                    continue
                if "{panama}" in program[4] and not panama:
                    print(f"{jdk:3} {program[0]:17} NOT RUN, no C compiler", flush=True)
                    continue
                recording = str(scratch / f"{jdk}-{program[3]}-{'-'.join(program[2]) or 'plain'}.tickwalk")
                try:
                    run(machine, home, program, classes, recording, panama)
                    summary = account.of_recording(machine.tickwalk, recording)
                except (ValueError, subprocess.TimeoutExpired) as error:
                    bad.append(f"{jdk} {program[0]}: {error}")
                    print(f"{jdk:3} {program[0]:17} FAILED {error}", flush=True)
                    continue
                complaints = list(account.complaints(summary))
                samples, reasons = summary["samples"], summary["failed"]
                requests += samples
                failed.update(reasons)
                share = 1 - sum(reasons.values()) / max(samples, 1)
                text = f"{jdk:3} {program[0]:17} {samples:6} samples {100 * share:6.2f} % whole"
                text += "".join(f", {reason} {count}" for reason, count in reasons.items())
                text += f", handler {summary['handler_cycles']['p50']} ticks"
                text += ", account closes" if not complaints else f", ACCOUNT {complaints}"
                if program[3] == "TwoMethods":
                    times = self_time(machine.tickwalk, recording)
                    ratio = times["TwoMethods.heavy"] / max(times["TwoMethods.light"], 1)
                    text += f", heavy : light {ratio:.2f}"
                    if not RATIO[0] <= ratio <= RATIO[1]:
                        bad.append(f"{jdk} {program[0]}: ratio {ratio:.2f}")
                bad += [f"{jdk} {program[0]}: {complaint}" for complaint in complaints]
                print(text, flush=True)
            share = 1 - sum(failed.values()) / max(requests, 1)
            print(f"{jdk:3} all {requests} samples {100 * share:.2f} % whole, others: {dict(failed)}", flush=True)
            if share < MIN_SHARE or not requests:
                bad.append(f"{jdk}: {100 * share:.2f} % of {requests} samples whole")
    for complaint in bad:
        print(f"aarch64: {complaint}", file=sys.stderr)
    sys.exit(1 if bad else 0)


main()
