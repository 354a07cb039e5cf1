"""Runs Java programs under the agent and reports how many stacks are whole; called by java-tests/measure/aarch64.

  python3 java-tests/measure subset emulated FOLDER-OF-LIBRARY [JDK...]         the agent for aarch64, under emulation
  python3 java-tests/measure subset native FOLDER-OF-LIBRARY [JAVA_HOME...]     the agent of this machine

A stack is whole if its walk ends at a root. Each line has the JDK, the program, the samples, the share of whole stacks, the
reasons of the others, the median of the counter's ticks in the handler, whether the account closes, and what else the program
says about its stacks (CHECKS). Exit code 1 if one of these is not as promised.
"""

import collections
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

from measure import account
from measure.harness import compile_workloads

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent
CACHE = HERE / ".cache/aarch64"
JDKS = ["11", "17", "21", "25"]


class Program(typing.NamedTuple):
    """A Java program; {panama} in an argument is a native library."""

    label: str
    name: str
    arguments: list = ["1"]
    options: list = []
    first_jdk: int = 11
    exit_code: int = 0


# An emulated second is a tenth of a real one.
PROGRAMS = [
    Program("two methods 3:1", "TwoMethods"),
    Program("interpreted only", "TwoMethods", options=["-Xint"]),
    Program("deep recursion", "DeepRecursion"),
    Program("inlined chain", "InlinedChain"),
    Program("lambdas", "Lambdas"),
    Program("native frames", "NativeHeavy"),
    Program("exceptions", "Exceptions"),
    Program("deoptimisation", "DeoptStorm"),
    Program("shadow stack", "ShadowStack"),
    Program("System.exit", "SystemExit", exit_code=7),
    Program("uncaught", "UncaughtException", exit_code=1),
    Program("killed", "Burner", ["60"], exit_code=-signal.SIGKILL),
    Program("virtual threads", "VirtualThreads", first_jdk=21),
    Program("foreign functions", "Panama", ["1", "{panama}"], ["--enable-native-access=ALL-UNNAMED", "--enable-preview"], 21),
]
# How the native libraries of tests are compiled (java-tests/harness/native_library.rs).
C_OPTIONS = ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
# All samples of a JDK together. A single program has some hundred samples.
MIN_SHARE = 0.995
# heavy / light: the JIT of the emulator moves the true ratio a little; the program prints it.
RATIO = (2.0, 4.5)
# Share of the stacks in a program's innermost method that must have all its callers.
MIN_CALLERS = 0.97
# Calls that DeepRecursion and VirtualThreads make, the innermost one of which burns.
RECURSIONS = {"DeepRecursion": ("DeepRecursion.recurse", 1_000), "VirtualThreads": ("VirtualThreads.descend", 30)}
INLINED_CHAIN = ["InlinedChain.run", "InlinedChain.a", "InlinedChain.b", "InlinedChain.c", "InlinedChain.d"]
# Longest chain of calls that C2 inlines (MaxInlineLevel), up to JDK 13 and from JDK 14 on.
MAX_INLINED = (9, 15)
# Methods of ShadowStack that record its stacks and are not recorded themselves.
RECORDING_METHODS = {"ShadowStack.push", "ShadowStack.pop", "ShadowStack.add"}
# CPU time after which a program is killed.
KILLED_NS = 2_000_000_000
# An emulated program takes a minute on an idle machine.
SECONDS = 1_200


class Emulated:
    """The agent for aarch64 on an emulated processor."""

    launcher = [CACHE / "qemu/usr/bin/qemu-aarch64", "-L", CACHE / "guest"]
    compiler = CACHE / "bin/cc"

    def __init__(self, folder, jdks):
        self.library = pathlib.Path(folder).resolve() / "libtickwalk.so"
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
    """Runs a program under the agent; returns what it printed."""
    arguments = [argument.format(panama=panama) for argument in program.arguments]
    agent = f"-agentpath:{machine.library}=file={recording},interval=4ms"
    command = [*map(str, machine.launcher), str(home / "bin/java"), agent, *program.options, "-cp", str(classes), program.name,
               *arguments]
    with open(f"{recording}.out", "w+") as out:
        started = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + SECONDS
            while program.exit_code == -signal.SIGKILL and started.poll() is None and time.monotonic() < deadline:
                # A workload prints its CPU time every 100 ms.
                burnt = re.findall(r"cpu_ns=(\d+)\n", pathlib.Path(out.name).read_text(errors="replace"))
                if burnt and int(burnt[-1]) >= KILLED_NS:
                    started.kill()
                    break
                time.sleep(0.1)
            started.wait(timeout=deadline - time.monotonic())
        finally:
            started.kill()
            started.wait()
        out.seek(0)
        printed = out.read()
    if started.returncode != program.exit_code:
        raise ValueError(f"exit {started.returncode}, not {program.exit_code}: {printed[-300:]}")
    return printed


def stacks_of(command, recording):
    """Returns the stacks of a recording: frames from the root on without those of the reason at the end, whether the stack is
    whole, and ns."""
    done = subprocess.run([command, "export", "--unit", "ns", recording, "-o", f"{recording}.collapsed"], capture_output=True)
    if done.returncode != 0:
        raise ValueError(f"tickwalk export: exit {done.returncode}: {done.stderr[-300:]}")
    found = []
    for line in pathlib.Path(f"{recording}.collapsed").read_text(errors="replace").splitlines():
        stack, _, weight = line.rpartition(" ")
        frames = stack.split(";")
        is_cut = re.fullmatch(r"\[[a-z_]+\]", frames[0]) is not None
        found.append((frames[is_cut:], not is_cut, int(weight)))
    return found


def ns(stacks, matches):
    return sum(weight for frames, _, weight in stacks if matches(frames))


def check_ratio(stacks, _printed, _jdk):
    """Yields the ratio of two methods that burn 3 to 1."""
    heavy, light = (ns(stacks, lambda frames: frames[-1:] == [f"TwoMethods.{name}"]) for name in ("heavy", "light"))
    ratio = heavy / max(light, 1)
    yield RATIO[0] <= ratio <= RATIO[1], f"heavy : light {ratio:.2f}"


def check_recursion(stacks, _printed, _jdk, burn, recurse, calls):
    """Whole stacks in the innermost method have all calls, and none has more."""
    inside = [(frames.count(recurse), weight) for frames, is_whole, weight in stacks if is_whole and burn in frames]
    right = sum(weight for count, weight in inside if count == calls)
    share = right / max(sum(weight for _, weight in inside), 1)
    most = max((count for count, _ in inside), default=0)
    yield share >= MIN_CALLERS and most == calls, f"{100 * share:.1f} % have {calls} calls, none more than {most}"


def check_chain(stacks, _printed, _jdk):
    inside = [stack for stack in stacks if INLINED_CHAIN[-1] in stack[0]]
    text = ";".join(INLINED_CHAIN)
    share = ns(inside, lambda frames: text in ";".join(frames)) / max(ns(inside, lambda _: True), 1)
    yield share >= MIN_CALLERS, f"{100 * share:.1f} % of d below run;a;b;c"


def check_shadow(stacks, printed, jdk):
    """The program records its own stacks: every whole stack must be one of them (java-tests/tests/shadow_stack.rs)."""
    nodes, known, calls = [], set(), set()
    for _, node, parent, name in (line.split(" ") for line in printed.splitlines() if line.startswith("shadow ")):
        path = (*nodes[int(parent)], name) if nodes else (name,)
        assert int(node) == len(nodes), "nodes are printed in order"
        nodes.append(path)
        known.add(path)
        calls.update(itertools.pairwise(path[-2:]))
    judged = wrong = 0
    example = ""
    for frames, is_whole, _ in stacks:
        if not is_whole or "ShadowStack.next" not in frames:
            continue
        own = tuple(frame for frame in frames if frame.startswith("ShadowStack") and "ambda$" not in frame
                    and "$$Lambda" not in frame and frame not in RECORDING_METHODS)
        judged += 1
        # The debug information of an instruction may name an inlined call that was not made this time.
        additional = next((count for count in range(MAX_INLINED[jdk >= 14] + 1) if own[:len(own) - count] in known), None)
        newest = own[len(own) - (additional or 0) - 1:]
        if additional is None or not all(call in calls for call in itertools.pairwise(newest)):
            wrong += 1
            example = f", such as {';'.join(own)}"
    yield judged > 0 and not wrong, f"{judged} different stacks, {wrong} of them never existed{example}"


def check_truth(stacks, printed, _jdk):
    """The time of a method is what the program measured, within a tenth: under emulation, compiling takes time of the thread."""
    name, true_ns = re.search(r"truth method=(\S+) cpu_ns=(\d+)", printed).groups()
    sampled = ns(stacks, lambda frames: name in frames)
    yield sampled >= 0.9 * int(true_ns), f"{name} {sampled / 1e9:.2f} s, true at least {int(true_ns) / 1e9:.2f} s"


def check_killed(stacks, printed, _jdk):
    """A killed program loses what was not sent."""
    true_ns = int(re.findall(r"cpu_ns=(\d+)\n", printed)[-1])
    sampled = ns(stacks, lambda frames: "Burner.burn" in frames)
    yield sampled >= true_ns / 2, f"Burner.burn {sampled / 1e9:.2f} s of {true_ns / 1e9:.2f} s"


# What programs know of their stacks: functions that yield whether it is true, and a text.
CHECKS = {
    "TwoMethods": check_ratio,
    "InlinedChain": check_chain,
    "ShadowStack": check_shadow,
    "SystemExit": check_truth,
    "UncaughtException": check_truth,
    "Burner": check_killed,
}


def checks_of(program, stacks, printed, jdk):
    if program.name in RECURSIONS:
        return check_recursion(stacks, printed, jdk, f"{program.name}.burn", *RECURSIONS[program.name])
    return CHECKS[program.name](stacks, printed, jdk) if program.name in CHECKS else []


def examine(machine, home, jdk, program, folders, bad):
    """Runs a program and prints its line; returns the samples and the reasons of those that are not whole."""
    scratch, classes, panama = folders
    recording = str(scratch / f"{jdk}-{program.name}-{'-'.join(program.options) or 'plain'}.tickwalk")
    try:
        printed = run(machine, home, program, classes, recording, panama)
        summary = account.of_recording(machine.tickwalk, recording)
        checks = list(checks_of(program, stacks_of(machine.tickwalk, recording), printed, jdk))
    except (ValueError, subprocess.TimeoutExpired) as error:
        bad.append(f"{jdk} {program.label}: {error}")
        print(f"{jdk:3} {program.label:17} FAILED {error}", flush=True)
        return 0, {}
    samples, reasons = summary["samples"], summary["failed"]
    share = 1 - sum(reasons.values()) / max(samples, 1)
    text = f"{jdk:3} {program.label:17} {samples:6} samples {100 * share:6.2f} % whole"
    text += "".join(f", {reason} {count}" for reason, count in reasons.items())
    text += f", handler {summary['handler_cycles']['p50']} ticks"
    if program.exit_code == -signal.SIGKILL:
        # What was written before the signal can be read, and has no end.
        if summary["complete"] or not samples:
            bad.append(f"{jdk} {program.label}: complete {summary['complete']}, {samples} samples")
        text += ", no end"
    else:
        complaints = list(account.complaints(summary))
        bad += [f"{jdk} {program.label}: {complaint}" for complaint in complaints]
        text += ", account closes" if not complaints else f", ACCOUNT {complaints}"
    for holds, what in checks:
        text += f", {what}" if holds else f", WRONG {what}"
        if not holds:
            bad.append(f"{jdk} {program.label}: {what}")
    print(text, flush=True)
    return samples, reasons


def main():
    machine = (Emulated if sys.argv[1] == "emulated" else Native)(sys.argv[2], sys.argv[3:])
    bad = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folders = scratch, compile_workloads(scratch), native_library(machine, scratch, "panama")
        for jdk, home in sorted(machine.jdks.items()):
            requests, failed = 0, collections.Counter()
            for program in PROGRAMS:
                if jdk < program.first_jdk:
                    continue
                if "{panama}" in program.arguments and not folders[2]:
                    print(f"{jdk:3} {program.label:17} NOT RUN, no C compiler", flush=True)
                    continue
                samples, reasons = examine(machine, home, jdk, program, folders, bad)
                requests += samples
                failed.update(reasons)
            share = 1 - sum(failed.values()) / max(requests, 1)
            print(f"{jdk:3} all {requests} samples {100 * share:.2f} % whole, others: {dict(failed)}", flush=True)
            if share < MIN_SHARE or not requests:
                bad.append(f"{jdk}: {100 * share:.2f} % of {requests} samples whole")
    for complaint in bad:
        print(f"aarch64: {complaint}", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
