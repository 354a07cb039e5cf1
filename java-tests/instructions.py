#!/usr/bin/env python3
"""Counts the instructions of the signal handler on x86-64 and aarch64, emulated; called by java-tests/aarch64 count.

The emulator's debugging stub steps through the handler of agent/examples/bare_handler.rs, from its first instruction to
its return, functions of the C library included. Prints one row for each size of stack.
"""

import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

CACHE = pathlib.Path(__file__).resolve().parent / ".cache/aarch64"
# By CPU: registers before the pc in the stub's list, and the return address at a function's entry (a register, or the word
# that a register points at).
CPUS = {
    "x86_64": {"pc": 16, "register": 7, "on_stack": True, "options": []},
    "aarch64": {"pc": 32, "register": 30, "on_stack": False, "options": ["-L", CACHE / "guest"]},
}
SIZES = [1 << 10, 8 << 10, 64 << 10]
TRAP = 5
# A handler that has not returned after this many instructions is lost.
MOST = 1_000_000
SECONDS = 60


class Stub:
    """A client of the emulator's debugging stub (GDB manual, appendix E: remote serial protocol)."""

    def __init__(self, path):
        deadline = time.monotonic() + SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise ValueError("the emulator does not start")
            time.sleep(0.05)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))
        self.buffer = b""

    def receive(self):
        while True:
            found = re.search(rb"\$([^#]*)#..", self.buffer)
            if found:
                self.buffer = self.buffer[found.end():]
                self.socket.sendall(b"+")
                return found[1].decode()
            part = self.socket.recv(65536)
            if not part:
                raise ValueError("the emulator has ended")
            self.buffer += part

    def ask(self, text):
        self.socket.sendall(f"${text}#{sum(text.encode()) & 255:02x}".encode())
        return self.receive()

    def register(self, number):
        text = self.ask("g")
        return int.from_bytes(bytes.fromhex(text[16 * number:16 * number + 16]), "little")

    def word(self, address):
        return int.from_bytes(bytes.fromhex(self.ask(f"m{address:x},8")), "little")


def count_run(stub, cpu):
    """Steps through one run of the handler, which the program has entered; returns the number of instructions."""
    back = stub.register(cpu["register"])
    if cpu["on_stack"]:
        back = stub.word(back)
    for steps in range(1, MOST):
        stub.ask("s")
        if stub.register(cpu["pc"]) == back:
            return steps
    raise ValueError(f"the handler has not returned after {MOST} instructions")


def count(name, program):
    """Returns the instructions of each run of the handler, by the bytes of the stack that it has copied."""
    cpu, runs, handler = CPUS[name], [], None
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "stub"
        emulator = [CACHE / f"qemu/usr/bin/qemu-{name}", *cpu["options"], "-g", path]
        child = subprocess.Popen([*map(str, emulator), str(program)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            stub = Stub(path)
            stub.ask("?")
            stopped = stub.ask("c")
            while stopped.startswith("T"):
                signal = int(stopped[1:3], 16)
                if signal != TRAP:
                    # A signal that the program is about to get.
                    if handler is None:
                        handler = int(re.fullmatch(r"handler ([0-9a-f]+)\n", child.stdout.readline())[1], 16)
                        stub.ask(f"Z0,{handler:x},4")
                    stopped = stub.ask(f"C{signal:02x}")
                    continue
                stub.ask(f"z0,{handler:x},4")
                runs.append(count_run(stub, cpu))
                stub.ask(f"Z0,{handler:x},4")
                stopped = stub.ask("c")
            lines = child.stdout.read()
        finally:
            child.kill()
            child.wait()
    copied = [int(number) for number in re.findall(r"sampled (\d+)", lines)]
    if len(copied) != len(runs) or not copied:
        raise ValueError(f"{name}: {len(runs)} runs of the handler, {len(copied)} reported")
    return dict(zip(copied, runs))


def main():
    counts = {name: count(name, program) for name, program in zip(CPUS, sys.argv[1:], strict=True)}
    print("| bytes of the stack | " + " | ".join(counts) + " |\n|---|---|---|")
    for size in SIZES:
        missing = [name for name, found in counts.items() if size not in found]
        if missing:
            sys.exit(f"aarch64: {', '.join(missing)}: no run copied {size} bytes, but {counts}")
        print(f"| {size:,} | " + " | ".join(f"{found[size]:,}" for found in counts.values()) + " |")


main()
