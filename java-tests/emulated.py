#!/usr/bin/env python3
"""Runs Java programs under the aarch64 agent, emulated, and reports how many stacks are whole; called by java-tests/aarch64.

A stack is whole if its walk ends at a root. Each line has the JDK, the program, the samples, the share of whole stacks, the
reasons of the others, and whether the account closes. Exit code 1 if a share or an account is not as promised.
"""

import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile

import account
from harness import compile_workloads

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = HERE / ".cache/aarch64"
LIBRARY = ROOT / "target/aarch64/aarch64-unknown-linux-gnu/debug/libtickwalk.so"
# Name, first release, JVM options, class, arguments. An emulated second is a tenth of a real one.
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


def tickwalk():
    for place in [ROOT / "target/release/tickwalk", ROOT / "target/debug/tickwalk", shutil.which("tickwalk")]:
        if place and pathlib.Path(place).exists():
            return str(place)
    sys.exit("aarch64: no tickwalk command for this machine; run cargo build")


def native_library(scratch, name):
    """Compiles a native library of the workloads for the emulated machine."""
    library = scratch / f"lib{name}.so"
    source = HERE / f"workloads/native/{name}.c"
    subprocess.run([CACHE / "bin/cc", *C_OPTIONS, "-o", library, source], check=True)
    return str(library)


def run(jdk, program, classes, recording, panama):
    _, _, options, name, arguments = program
    arguments = [argument.format(panama=panama) for argument in arguments]
    java = [CACHE / "qemu/usr/bin/qemu-aarch64", "-L", CACHE / "guest", CACHE / f"jdk/{jdk}/bin/java"]
    agent = f"-agentpath:{LIBRARY}=file={recording},interval=4ms"
    command = [*map(str, java), agent, *options, "-cp", str(classes), name, *arguments]
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
    jdks = sys.argv[1:] or ["11", "17", "21", "25"]
    command, bad = tickwalk(), []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        classes = compile_workloads(scratch)
        panama = native_library(scratch, "panama")
        for jdk in jdks:
            requests, failed = 0, collections.Counter()
            for program in PROGRAMS:
                if int(jdk) < program[1]:
                    continue
                recording = str(scratch / f"{jdk}-{program[3]}.tickwalk")
                try:
                    run(jdk, program, classes, recording, panama)
                    summary = account.of_recording(command, recording)
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
                text += ", account closes" if not complaints else f", ACCOUNT {complaints}"
                if program[3] == "TwoMethods":
                    times = self_time(command, recording)
                    ratio = times["TwoMethods.heavy"] / max(times["TwoMethods.light"], 1)
                    text += f", heavy : light {ratio:.2f}"
                    if not RATIO[0] <= ratio <= RATIO[1]:
                        bad.append(f"{jdk} {program[0]}: ratio {ratio:.2f}")
                bad += [f"{jdk} {program[0]}: {complaint}" for complaint in complaints]
                print(text, flush=True)
            share = 1 - sum(failed.values()) / max(requests, 1)
            print(f"{jdk:3} all {requests} samples {100 * share:.2f} % whole, others: {dict(failed)}", flush=True)
            if share < MIN_SHARE:
                bad.append(f"{jdk}: {100 * share:.2f} % whole")
    for complaint in bad:
        print(f"aarch64: {complaint}", file=sys.stderr)
    sys.exit(1 if bad else 0)


main()
