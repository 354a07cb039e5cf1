"""Makes millions of walks with randomly changed registers inside running JVMs; no JVM may be affected.

  python3 java-tests/measure stress [--jdk NAME]... [--workload NAME]... [--seconds S] [--walks N]

For every sample the sampler thread repeats the walk N times (400 by default). Each time one to three of pc, sp, fp, the
interpreter's registers, the anchor and the thread state are shifted by some words or bytes, or replaced by a word of the
stack or by a random number (option debug=shift:N of the agent). The random numbers have a fixed seed. Prints Markdown:
walks and frames by JDK, and the stop reasons. Fails if a JVM does not end normally, or a JDK has less than a million walks.
Prerequisites: java-tests/fetch and an agent with developers' hooks: CARGO_TARGET_DIR=target/hooks cargo build --release
-p agent --features agent/hooks; TICKWALK_BIN_DIR names another folder of binaries.
"""

import argparse
import ast
import collections
import re
import subprocess
import tempfile

from measure.harness import JDKS, binary, compile_workloads, complain, fail, java

WORKLOADS = ["RegexStrings", "DeoptStorm", "Lambdas", "Exceptions", "DeepRecursion", "AllocHeavy"]
# Fewest walks per JDK.
MIN_WALKS = 1_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--walks", type=int, default=400)
    options = parser.parse_args()
    agent = binary("libtickwalk.so", "hooks/release",
                   "CARGO_TARGET_DIR=target/hooks cargo build --release -p agent --features agent/hooks")
    failed = False
    print("| JDK | walks | frames | compared and equal | stop reasons |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-stress-") as scratch:
        classes = compile_workloads(scratch)
        for jdk in options.jdk or JDKS:
            walks, frames, same, stops = 0, 0, 0, collections.Counter()
            for workload in options.workload or WORKLOADS:
                option = f"interval=1ms,file={scratch}/x.tickwalk,debug=shift:{options.walks},debug=compare-walks"
                command = [java(jdk), f"-agentpath:{agent}={option}", "-cp", classes, workload, str(options.seconds)]
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
                counted = re.search(r"shifted walks (\d+) frames (\d+) stops (\{.*\})", done.stderr)
                if done.returncode != 0 or "truth thread=main" not in done.stdout or not counted:
                    complain(f"JDK {jdk} {workload}: exit {done.returncode}: {done.stderr[-3000:]}")
                    failed = True
                    continue
                compared = re.search(r"compared walks: (\d+) equal, (\d+) different, \d+ apart; ids: \d+ equal, (\d+) diff", done.stderr)
                if not compared or compared[2] != "0" or compared[3] != "0":
                    complain(f"JDK {jdk} {workload}: walks by known steps differ from walks without: {done.stderr[-3000:]}")
                    failed = True
                    continue
                same += int(compared[1])
                walks += int(counted[1])
                frames += int(counted[2])
                stops.update(ast.literal_eval(counted[3]))
            reasons = ", ".join(f"{name} {count}" for name, count in stops.most_common())
            print(f"| {jdk} | {walks} | {frames} | {same} | {reasons} |", flush=True)
            failed = failed or (walks < MIN_WALKS and not options.workload)
    if failed:
        fail("a JVM failed, or walks are missing")


if __name__ == "__main__":
    main()
