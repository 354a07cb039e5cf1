"""Starts and stops the profile of one JVM a thousand times; nothing may be left in the process.

  python3 java-tests/measure attach-cycles [--jdk NAME]... [--cycles N] [--address-space GIB] [--waiting]

The JVM runs four busy threads. With --waiting it is started with an agent that waits (start=no), else the first cycle loads
the agent. After a tenth of the cycles and after the last one the numbers of mappings, of descriptors, of
POSIX timers and of threads are compared, and the address space; each may grow by no more than the tolerance. The processes
run under a limit of 6 GiB of address space (ulimit -v), so a leak ends them too. Every hundredth recording must close its
account (java-tests/measure/account.py). After each tenth of the cycles no timer may be left, no thread of the agent and no handled
signal that the JVM did not handle before. Prints Markdown, and ends with 1 if something grows.
Prerequisites: java-tests/fetch and cargo build --release.
"""

import argparse
import pathlib
import resource
import subprocess
import tempfile
import time

from measure import account
from measure.attaching import Attached
from measure.harness import JDKS, binary, compile_workloads, complain, fail, java
from measure.long_run import MIB, TOLERANCE, look

# Seconds that a profile lasts.
PROFILE_SECONDS = 0.02
CHECKED = 100
# Busy threads, and seconds within which they must run.
THREADS = 4
STARTED = 60


def await_threads(child):
    """Waits until the busy threads run: the VM can be attached to, and has the signal handlers of its own."""
    deadline = time.monotonic() + STARTED
    while child.poll() is None and time.monotonic() < deadline:
        try:
            names = [(task / "comm").read_text() for task in pathlib.Path("/proc", str(child.pid), "task").iterdir()]
        except OSError:
            # A thread has ended meanwhile.
            continue
        if sum(name.startswith("busy-") for name in names) >= THREADS:
            return
        time.sleep(0.02)
    raise OSError("the program does not start")


def traces(pid):
    """Returns what a profile may leave: the mask of handled signals, the number of timers, the agent's threads."""
    proc = pathlib.Path("/proc", str(pid))
    handled = next(line.split()[1] for line in (proc / "status").read_text().splitlines() if line.startswith("SigCgt:"))
    threads = [name for task in (proc / "task").iterdir() if (name := (task / "comm").read_text()).startswith("tickwalk")]
    return handled, (proc / "timers").read_text().count("ID:"), threads


def run(jdk, options, classes, scratch):
    """Returns the looks at the process after each tenth of the cycles, and what is wrong."""
    agent, tickwalk = binary("libtickwalk.so"), binary("tickwalk")
    limit = options.address_space << 30
    waiting = [f"-agentpath:{agent}=start=no"] if options.waiting else []
    child = subprocess.Popen([java(jdk), *waiting, "-Xmx256m", "-cp", classes, "BusyThreads", "1000000", str(THREADS)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    looks, found, recording = [], [], pathlib.Path(scratch) / f"{jdk}.tickwalk"
    begin = time.monotonic()
    try:
        await_threads(child)
        jvm = Attached(child.pid, agent)
        before = traces(child.pid)
        for cycle in range(1, options.cycles + 1):
            jvm.start(recording)
            time.sleep(PROFILE_SECONDS)
            jvm.stop()
            if cycle % CHECKED == 0:
                found += [f"cycle {cycle}: {text}" for text in account.complaints(account.of_recording(tickwalk, recording))]
            if cycle % max(options.cycles // 10, 1) == 0:
                looks.append(look(child.pid))
                if traces(child.pid) != before:
                    found.append(f"cycle {cycle}: handled signals, timers and agent's threads were {before}, are {traces(child.pid)}")
                complain(f"JDK {jdk}, {cycle} cycles in {time.monotonic() - begin:.0f} s: {looks[-1]}")
    except (OSError, ValueError) as error:
        found.append(f"after {len(looks)} tenths: {error}")
    finally:
        child.kill()
        errors = child.communicate()[1]
    found += [line for line in errors.splitlines() if line.startswith("tickwalk: ")]
    return looks, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--address-space", type=int, default=6)
    parser.add_argument("--waiting", action="store_true")
    options = parser.parse_args()
    complaints = []
    print(f"| JDK | | after {options.cycles // 10} cycles | after {options.cycles} |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-cycles-") as scratch:
        classes = compile_workloads(scratch)
        for jdk in options.jdk or JDKS:
            looks, found = run(jdk, options, classes, scratch)
            for name, tolerance in TOLERANCE.items() if len(looks) > 1 else []:
                first, last = (one[name] for one in (looks[0], looks[-1]))
                scale, unit = (MIB, " MiB") if tolerance >= MIB else (1, "")
                print(f"| {jdk} | {name.replace('_', ' ')} | {first / scale:.0f}{unit} | {last / scale:.0f}{unit} |", flush=True)
                if last > first + tolerance:
                    found.append(f"{name} grows from {first} to {last}")
            complaints += [f"JDK {jdk}: {text}" for text in found]
    print("\n" + "\n".join(f"- {text}" for text in complaints))
    if complaints:
        fail(f"{len(complaints)} complaints")


if __name__ == "__main__":
    main()
