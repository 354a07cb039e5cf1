"""Counts the instructions of the signal handler on x86-64 and aarch64, emulated; called by java-tests/measure/aarch64 count.

The emulator lists the address of each instruction of agent/examples/bare_handler.rs. Counted are those from the handler's first
one to the return to the system call that the signal has interrupted, functions of the C library and the kernel's way back
included. Prints one row for each size of stack.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CACHE = pathlib.Path(__file__).resolve().parent.parent / ".cache/aarch64"
# Bytes of the system call instruction, by CPU.
CALL_BYTES = {"x86_64": 2, "aarch64": 4}
# A server processor without instructions for memory copies, by which the C library would copy all in a few.
OPTIONS = {"x86_64": [], "aarch64": ["-cpu", "neoverse-n1", "-L", CACHE / "guest"]}
SIZES = [1 << 10, 8 << 10, 64 << 10]
SECONDS = 600
# A line of the list: the address is the second number in the brackets.
TRACE = re.compile(r"Trace [^\[]*\[[^/]*/([0-9a-f]+)/")


def count(name, program):
    """Returns the instructions of each run of the handler, by the bytes of the stack that it has copied."""
    with tempfile.TemporaryDirectory() as scratch:
        listed = pathlib.Path(scratch) / "instructions"
        emulator = [CACHE / f"qemu/usr/bin/qemu-{name}", *OPTIONS[name], "-one-insn-per-tb", "-d", "nochain,exec", "-D", listed]
        done = subprocess.run([*map(str, emulator), program], capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            sys.exit(f"aarch64: {program}: exit {done.returncode}: {done.stderr[-500:]}")
        handler = int(re.search(r"handler ([0-9a-f]+)", done.stdout)[1], 16)
        copied = [int(number) for number in re.findall(r"sampled (\d+)", done.stdout)]
        runs, before, back, steps = [], 0, None, 0
        with listed.open() as lines:
            for line in lines:
                found = TRACE.match(line)
                if not found:
                    continue
                address = int(found[1], 16)
                if back is None and address == handler:
                    back, steps = before + CALL_BYTES[name], 0
                elif back == address:
                    runs.append(steps)
                    back = None
                if back is not None:
                    steps += 1
                before = address
    if len(copied) != len(runs) or not runs:
        sys.exit(f"aarch64: {name}: {len(runs)} runs of the handler are listed, {len(copied)} reported")
    return dict(zip(copied, runs))


def main():
    counts = {name: count(name, program) for name, program in zip(CALL_BYTES, sys.argv[1:])}
    print("| bytes of the stack | " + " | ".join(counts) + " |\n|---" + "|---" * len(counts) + "|")
    for size in SIZES:
        missing = [name for name, found in counts.items() if size not in found]
        if missing:
            sys.exit(f"aarch64: {', '.join(missing)}: no run copied {size} bytes, but {counts}")
        print(f"| {size:,} | " + " | ".join(f"{found[size]:,}" for found in counts.values()) + " |")


if __name__ == "__main__":
    main()
