"""Measures garbage collection pauses with and without the agent, also on a machine with more to do than it has processors.

  python3 java-tests/measure pauses [--jdk NAME]... [--busy N]... [--rounds N] [--seconds S] [--interval T]

Runs AllocHeavy alone, with the agent, and with gcdrain=off, beside N busy processes (none, then 4), S seconds of CPU time each
(2 by default; with 3 rounds this takes some four minutes on two processors). Reads the pauses from the VM's log, which holds
the whole pause, and from the agent's statistics how long it made pauses wait. Prints Markdown: quantiles of all pauses, and
of the runs' waits the largest median, 99th percentile and maximum.
Prerequisites: java-tests/fetch and cargo build --release.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

from measure import account
from measure.harness import binary, compile_workloads, complain, java, rotated

PAUSE = re.compile(r"Pause .* ([\d.]+)ms$", re.MULTILINE)
SIDES = {"none": None, "default": "", "gcdrain=off": ",gcdrain=off"}


def quantile(values, share):
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--busy", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--interval", default="1ms")
    options = parser.parse_args()
    agent, tickwalk = binary("libtickwalk.so"), binary("tickwalk")
    print("| JDK | busy | agent | pauses | p50, ms | p99, ms | max, ms | wait for the agent: p50, us | p99, us | max, us | cut short |")
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-pauses-") as scratch:
        classes = compile_workloads(scratch)

        def run(jdk, side):
            """Returns the pauses of one run, and its statistics of waits."""
            log, recording = pathlib.Path(scratch) / "gc.log", f"{scratch}/out.tickwalk"
            log.unlink(missing_ok=True)
            more = SIDES[side]
            load = [] if more is None else [f"-agentpath:{agent}=interval={options.interval},file={recording}{more}"]
            subprocess.run([java(jdk), "-Xmx256m", f"-Xlog:gc:file={log}", *load, "-cp", classes, "AllocHeavy", options.seconds],
                           check=True, stdout=subprocess.DEVNULL)
            wait = [account.of_recording(tickwalk, recording)["unloading"]["pause_added_ns"]] if load else []
            return list(map(float, PAUSE.findall(log.read_text()))), wait

        for busy in options.busy or [0, 4]:
            processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                for jdk in options.jdk or ["17", "25"]:
                    pauses, waits = {side: [] for side in SIDES}, {side: [] for side in SIDES}
                    for turn in range(options.rounds):
                        for side in rotated(list(SIDES), turn):
                            found, wait = run(jdk, side)
                            pauses[side] += found
                            waits[side] += wait
                        complain(f"JDK {jdk} beside {busy}, round {turn + 1} of {options.rounds}")
                    for side in SIDES:
                        print(row(jdk, busy, side, sorted(pauses[side]), waits[side]), flush=True)
            finally:
                for process in processes:
                    process.kill()


def row(jdk, busy, side, pauses, waits):
    quantiles = [f"{quantile(pauses, share):.2f}" for share in (0.5, 0.99, 1)]
    wait = [f"{max(one[key] for one in waits) / 1e3:.0f}" if waits else "-" for key in ("p50", "p99", "max")]
    cut = sum(one["cut_short"] for one in waits)
    return f"| {' | '.join(map(str, [jdk, busy, side, len(pauses), *quantiles, *wait, cut]))} |"


if __name__ == "__main__":
    main()
