"""Measures the cost of idle threads: ten busy threads alone, and beside thousands of parked ones, in interleaved runs.

  python3 java-tests/measure idle-cost [--jdk NAME] [--runs N] [--idle N] [--seconds S]

Prints Markdown: the time of a drain, and the CPU time of the sampler thread, which also finds and names each thread once.
Prerequisites: java-tests/fetch and cargo build --release.
"""

import argparse
import json
import statistics
import subprocess
import tempfile

from measure.harness import binary, compile_workloads, interleaved, java


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", default="17")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--idle", type=int, default=9990)
    parser.add_argument("--seconds", default="20")
    options = parser.parse_args()
    agent, tickwalk = binary("libtickwalk.so"), binary("tickwalk")
    with tempfile.TemporaryDirectory(prefix="tickwalk-idle-cost-") as scratch:
        classes = compile_workloads(scratch)
        recording = f"{scratch}/out.tickwalk"

        def run(with_idle):
            """Returns the median drain in microseconds and the CPU time of the sampler thread in milliseconds."""
            parked = options.idle if with_idle else 0
            subprocess.run([java(options.jdk), "-Xmx1g", f"-agentpath:{agent}=file={recording}", "-cp", classes,
                            "BusyThreads", options.seconds, "10", str(parked)], check=True, stdout=subprocess.DEVNULL)
            answer = subprocess.run([tickwalk, "query", "statistics", recording], check=True, stdout=subprocess.PIPE)
            process = json.loads(answer.stdout)["processes"][0]
            return process["drain_ns"]["p50"] / 1e3, process["sampler_cpu_ns"] / 1e6

        pairs = interleaved(options.runs, f"JDK {options.jdk} BusyThreads", run)
    print(f"JDK {options.jdk}, 10 busy threads, {options.seconds} s of CPU time, {options.runs} interleaved pairs:"
          " median and range of the runs.\n")
    print(f"| | 10 threads | 10 of {10 + options.idle} | ratio |")
    print("|---|---|---|---|")
    for part, (name, unit) in enumerate([("a drain, median of a run", "us"), ("CPU time of the sampler thread", "ms")]):
        columns = [sorted(pair[side][part] for pair in pairs) for side in (0, 1)]
        medians = [statistics.median(column) for column in columns]
        texts = [f"{median:.0f} {unit} ({column[0]:.0f} .. {column[-1]:.0f})" for median, column in zip(medians, columns)]
        print(f"| {name} | {texts[0]} | {texts[1]} | {medians[1] / medians[0]:.2f} |")


if __name__ == "__main__":
    main()
