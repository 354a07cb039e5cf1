"""Profiles thousands of virtual threads whose frames lie in a heap that is collected all the time, with each collector.

  python3 java-tests/measure collected-stacks [--jdk NAME]... [--collector NAME]... [--seconds S] [--threads N] [--gc MS] [--depth N]
                              [--jobs N] [--words MILLIONS] [--samples THOUSANDS] [--signals RATE]

Runs the workload CollectedStacks at 1 ms, with System.gc() every MS milliseconds (20 by default, 0 for none). Each of its
threads has methods and a depth of its own (20 to 65 frames, times N), so that a frame that the thread cannot have had
shows. Prints Markdown: CPU time of the samples below the workload's method, the share of whole stacks, why others end, and
the samples of carriers and the words of chunks that were copied. Fails on a crash and on a stack with a frame that its
thread cannot have had. With --words and --samples a cell is repeated until so many million words were copied and so many
thousand samples taken of threads that carry a virtual one; with --signals such threads get so many signals a second beside
those of their timers, which expire on the kernel's tick, and the times in the table mean nothing. These three need an agent
with developers' hooks (cargo build -p agent --features agent/hooks).
Prerequisites: java-tests/fetch and cargo build --release; TICKWALK_BIN_DIR names other binaries.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import tempfile

from measure.harness import binary, compile_workloads, complain, fail, java

PAUSING = {"Serial": ["-XX:+UseSerialGC"], "Parallel": ["-XX:+UseParallelGC"], "G1": ["-XX:+UseG1GC"]}
COLLECTORS = {
    "21": PAUSING | {
        "ZGC": ["-XX:+UseZGC"], "ZGC-generational": ["-XX:+UseZGC", "-XX:+ZGenerational"],
        "Shenandoah": ["-XX:+UseShenandoahGC"]},
    "25": PAUSING | {
        "ZGC": ["-XX:+UseZGC"], "Shenandoah": ["-XX:+UseShenandoahGC"],
        "Shenandoah-generational": ["-XX:+UseShenandoahGC", "-XX:ShenandoahGCMode=generational"],
        "Shenandoah-compact": ["-XX:+UseShenandoahGC", "-XX:+UseCompactObjectHeaders"]},
}
WORK = "CollectedStacks.work"
RUN = "CollectedStacks.run"
DEPTHS = {"CollectedStacks.first": 20, "CollectedStacks.second": 35, "CollectedStacks.third": 50, "CollectedStacks.fourth": 65}
# Frames of the agent in place of frames that are missing or without proven names.
MARK = re.compile(r"\[(continuation_barrier|copy_end|frames being thawed|[a-z]+_[a-z_]+|native frames missing|unloaded)\]")
CALLED = "CollectedStacks.called"
NATIVE = "java.util.zip.Deflater.deflateBytesBytes"
WORDS = re.compile(r"frozen frames: extent (\d+), (\d+) samples, (\d+) words")


class Cell:
    """Counts of one JDK and collector."""

    def __init__(self, factor):
        self.depths = {name: factor * depth for name, depth in DEPTHS.items()}
        self.ns, self.whole, self.wrong = collections.Counter(), collections.Counter(), collections.Counter()
        self.marks = collections.Counter()
        self.words, self.samples = 0, 0

    def add(self, collapsed):
        for line in collapsed.splitlines():
            stack, ns = line.rsplit(" ", 1)
            frames = stack.split(";")
            if WORK in frames:
                self.judge(frames, int(ns))

    def judge(self, frames, ns):
        place = "native" if NATIVE in frames else "below native" if CALLED in frames else "Java"
        self.ns[place] += ns
        mark = next((found[1] for frame in frames if (found := MARK.fullmatch(frame))), None)
        counts = {name: frames.count(name) for name in self.depths if name in frames}
        if len(counts) > 1 or any(count > self.depths[name] for name, count in counts.items()):
            self.wrong[";".join(frames)] += ns
        elif mark:
            self.marks[mark] += ns
        elif RUN in frames and counts and all(count == self.depths[name] for name, count in counts.items()):
            self.whole[place] += ns
        else:
            self.wrong[";".join(frames)] += ns

    def share(self, *places):
        total = sum(self.ns[place] for place in places)
        return f"{100 * sum(self.whole[place] for place in places) / total:.2f}" if total else "-"

    def row(self):
        total = sum(self.ns.values()) or 1
        marks = ", ".join(f"{mark} {100 * ns / total:.2f}" for mark, ns in self.marks.most_common())
        seconds = total / 1e9
        words = f"{self.words / 1e6:.1f}" if self.words else ""
        return (f"{seconds:.1f} | {self.share('Java', 'native', 'below native')} | {self.share('Java')} "
                f"| {self.share('native')} | {self.share('below native')} | {marks} | {sum(self.wrong.values()) / 1e6:.0f} "
                f"| {self.samples or ''} | {words}")


def run_once(cell, jdk, flags, classes, options):
    with tempfile.TemporaryDirectory(prefix="tickwalk-frozen-") as name:
        recording = pathlib.Path(name) / "x.tickwalk"
        agent = f"-agentpath:{binary('libtickwalk.so')}=interval=1ms,file={recording}{options.hooks}"
        program = ["CollectedStacks", options.seconds, options.threads, options.gc, options.depth]
        command = [java(jdk), "-Xmx1g", *flags, "-Djdk.reflect.useNativeAccessorOnly=true", agent, "-cp", classes, *map(str, program)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=options.seconds + 300, cwd=name)
        if done.returncode != 0 or "truth method=" not in done.stdout:
            fail(f"JDK {jdk} {' '.join(flags)}: exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-3000:]}")
        export = [binary("tickwalk"), "export", recording, "--format", "collapsed", "--unit", "ns"]
        cell.add(subprocess.run(export, capture_output=True, text=True, check=True).stdout)
        for _, samples, words in WORDS.findall(done.stderr):
            cell.samples += int(samples)
            cell.words += int(words)


def measure(jdk, collector, classes, options):
    cell = Cell(options.depth)
    run_once(cell, jdk, COLLECTORS[jdk][collector], classes, options)
    while cell.words < options.words * 1_000_000 or cell.samples < options.samples * 1_000:
        run_once(cell, jdk, COLLECTORS[jdk][collector], classes, options)
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append", choices=list(COLLECTORS))
    parser.add_argument("--collector", action="append")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--gc", type=int, default=20)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--words", type=float, default=0)
    parser.add_argument("--samples", type=float, default=0)
    parser.add_argument("--signals", type=int, default=0)
    options = parser.parse_args()
    has_hooks = options.words or options.samples or options.signals
    options.hooks = ",depth=16384,debug=frozen" if has_hooks else ""
    options.hooks += f",debug=signals:{options.signals}" if options.signals else ""
    cells = [(jdk, name) for jdk in options.jdk or COLLECTORS for name in COLLECTORS[jdk]
             if not options.collector or name in options.collector]
    failed = False
    print("| JDK | collector | s | whole, % | in Java | in native code | in Java called by native code | marked, % | wrong, ms | samples | million words |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tickwalk-frozen-") as scratch:
        classes = compile_workloads(scratch)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            work = [(cell, pool.submit(measure, *cell, classes, options)) for cell in cells]
            for (jdk, name), future in work:
                cell = future.result()
                print(f"| {jdk} | {name} | {cell.row()} |", flush=True)
                for stack in list(cell.wrong)[:3]:
                    complain(f"JDK {jdk} {name}: wrong stack {stack}")
                failed = failed or bool(cell.wrong) or not cell.ns
    if failed:
        fail("a stack has frames that its thread cannot have had, or there are no samples")


if __name__ == "__main__":
    main()
