"""Measures what the agent adds to a JVM's resident memory, and where: smaps of interleaved runs with and without it.

  python3 java-tests/measure memory [--jdk NAME]... [--pairs N] [--at SECONDS] [--workload NAME | --idle THREADS | --results]

With --idle the program is one busy thread beside that many parked ones, which shows the cost of an idle thread.
With --results the peaks of whole runs are measured that end with a recording or with another format: RandomRecursion,
whose stacks are hardly ever alike, at 1 ms.
Prints Markdown: medians in KiB without the agent, with it, and of the differences of pairs. The Java heap and the stack of
a JVM differ by a MiB from run to run, so single kinds of memory vary less than their sum.
Prerequisites: java-tests/fetch and cargo build --release.
"""

import argparse
import collections
import re
import statistics
import subprocess
import tempfile
import time

from measure.harness import binary, compile_workloads, complain, fail, interleaved, java, rotated, run_measured

MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+\s*(.*)")
# Size and alignment of glibc's malloc arenas.
ARENA = 64 << 20
# Suffixes of the files of --results.
RESULTS = ["none", "tickwalk", "collapsed", "html", "jfr", "pb.gz"]


def kind(mapping):
    path, start, size = mapping["path"], mapping["start"], mapping["size"]
    for library in ("libtickwalk.so", "libjvm.so"):
        if path.endswith(library):
            return f"{library}, {'code' if 'x' in mapping['rights'] else 'data'}"
    if path.startswith("/"):
        return "other files"
    if path:
        return "main thread's stack and heap"
    if mapping.get("AnonHugePages"):
        return "queues and slabs of ordinary stacks (one huge page)"
    if start % ARENA == 0 and size <= ARENA:
        return "arenas of malloc"
    return "anonymous: Java heap, metaspace, stacks, slabs of deep stacks, large blocks of malloc"


def resident(command, seconds):
    """Starts a JVM and returns its resident KiB by kind after some seconds."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(seconds)
        if child.poll() is not None:
            fail(f"{command} ended early")
        sizes, mapping = collections.Counter(), None
        for line in open(f"/proc/{child.pid}/smaps"):
            if header := MAPPING.match(line):
                start, end = int(header[1], 16), int(header[2], 16)
                mapping = {"start": start, "size": end - start, "rights": header[3], "path": header[4]}
            else:
                name, value = line.split(":", 1)
                if value.strip().endswith("kB"):
                    mapping[name] = int(value.split()[0])
                if name == "VmFlags":
                    sizes[kind(mapping)] += mapping["Rss"]
                    sizes["**total**"] += mapping["Rss"]
        return sizes
    finally:
        child.kill()
        child.wait()


def peaks(agent, classes, jdk, rounds, scratch):
    """Measures the peak resident memory of whole runs, by the format of their result, in interleaved rounds."""
    found = {result: [] for result in RESULTS}
    for turn in range(rounds):
        for result in rotated(RESULTS, turn):
            options = [f"-agentpath:{agent}=interval=1ms,file={scratch}/out.{result}"] if result != "none" else []
            heap = ["-Xmx256m", "-Xms256m", "-XX:+AlwaysPreTouch"]
            _, peak, _ = run_measured([java(jdk), *heap, *options, "-cp", classes, "RandomRecursion", "10"])
            found[result].append(peak / 1e6)
        complain(f"JDK {jdk} RandomRecursion, round {turn + 1} of {rounds}")
    for result in RESULTS[1:]:
        added = sorted(peak - none for peak, none in zip(found[result], found["none"]))
        print(f"| {jdk} | {result} | {statistics.median(added):+.1f} | {added[0]:+.1f} .. {added[-1]:+.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--at", type=float, default=3.5)
    parser.add_argument("--workload", default="FourThreads")
    parser.add_argument("--idle", type=int)
    parser.add_argument("--results", action="store_true")
    options = parser.parse_args()
    program = [options.workload, "3600"]
    if options.idle is not None:
        program = ["BusyThreads", "3600", "1", str(options.idle)]
    agent = binary("libtickwalk.so")
    if options.results:
        print("| JDK | result | added to the peak, MB: median | range |\n|---|---|---|---|")
        with tempfile.TemporaryDirectory(prefix="tickwalk-memory-") as scratch:
            classes = compile_workloads(scratch)
            for jdk in options.jdk or ["17"]:
                peaks(agent, classes, jdk, options.pairs, scratch)
        return
    print("| JDK | memory | without, KiB | with, KiB | difference, median | range |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-memory-") as scratch:
        classes = compile_workloads(scratch)
        for jdk in options.jdk or ["17"]:

            def run(profiled):
                option = [f"-agentpath:{agent}=file={scratch}/out.tickwalk"] if profiled else []
                return resident([java(jdk), *option, "-cp", classes, *program], options.at)

            run(True)  # fills the page cache
            pairs = interleaved(options.pairs, f"JDK {jdk} {' '.join(program)}", run)
            for name in sorted({name for pair in pairs for sizes in pair for name in sizes}):
                without, with_agent = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
                differences = sorted(b[name] - a[name] for a, b in pairs)
                print(f"| {jdk} | {name} | {without:.0f} | {with_agent:.0f} | {statistics.median(differences):+.0f} |"
                      f" {differences[0]:+} .. {differences[-1]:+} |")


if __name__ == "__main__":
    main()
