"""Runs the profiler beside other tools in one JVM, in every order of their start; neither may harm the other.

  python3 java-tests/measure coexistence [--jdk NAME]... [--tool NAME]... [--seconds S] [--jobs N] [--async-profiler LIBRARY] [--keep DIR]

Tools: JFR's sampler (of CPU time on JDK 25, of running threads before), async-profiler (cpu, ctimer, wall), a debugger over
jdwp, a Java agent that replaces classes, and a JNI library with a CPU timer and a handler of its own. Orders: both on the
command line, either first; and either of them loaded into the running JVM. Each cell is one run of S seconds of CPU time
(20 by default), on JDK 17 and 25.

A cell fails if the JVM ends with another exit code than 0; if the profiler's account does not close
(java-tests/measure/account.py) or its agent complains; if 0.1 % of the samples of Java threads or more are incomplete, or as many
stacks have [native frames missing] elsewhere than below libjvm's copy routines, which have no unwind
tables; or if the tool delivers less than 80 % of what it delivers alone, for the same CPU time
or wall time. Prints Markdown, and ends with 1 if a cell fails. Without --async-profiler its cells are skipped.
--keep keeps the folders of failed cells. Prerequisites: java-tests/fetch, cc and cargo build --release.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import shutil
import subprocess
import tempfile
import time

from measure import account
from measure import neighbours
from measure.harness import HERE, binary, compile_workloads, complain, fail, java, jdk_folder
from measure.profilers import check_library
from measure.supervised import Child

JDKS = ["17", "25"]
LATER = ["ours later", "theirs later"]
ORDERS = ["ours first", "theirs first", *LATER]
INTERVAL = "1ms"
# CPU seconds of a JVM before a tool is loaded into it.
LATER_CPU_SECONDS = 2
# Most samples of Java threads without their Java stack, and with native frames missing.
MOST_LOST = 0.001
LEAST_DELIVERED = 0.8
# Runs of a cell that may fall short for that reason alone; its words.
ATTEMPTS = 3
SHORT = "of what it delivers alone"
MISSING = "[native frames missing]"
# Assembler routines of libjvm that are entered by a jump have no unwind tables; the Java frames below them are found.
COPYING = f"{MISSING};_Copy_"
CC = ["cc", "-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-Wall"]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Bench:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, pathlib.Path(scratch)
        self.classes = compile_workloads(scratch)
        self.tickwalk, self.agent = binary("tickwalk"), binary("libtickwalk.so")
        self.foreign = self.scratch / "libforeigntimer.so"
        subprocess.run([*CC, "-o", self.foreign, HERE / "workloads/native/foreigntimer.c"], check=True)

    def tools(self, jdk):
        """Returns functions that make the tools, one for each run, because runs go on at the same time."""
        makers = [lambda: neighbours.Jfr(jdk)]
        if self.options.async_profiler:
            library = self.options.async_profiler.resolve()
            makers += [lambda event=event: neighbours.AsyncProfiler(library, event) for event in ("cpu", "ctimer", "wall")]
        debugged = [build for build in (jdk, f"{jdk}-sid") if (jdk_folder() / build / "lib/libjdwp.so").exists()]
        if debugged:
            makers.append(lambda: neighbours.Jdwp(debugged[0]))
        else:
            complain(f"SKIPPED jdwp on JDK {jdk}: this build has no libjdwp.so; java-tests/fetch --more-jdks fetches one that has")
        makers.append(lambda: neighbours.Instrumenting(self.classes, pathlib.Path(tempfile.mkdtemp(dir=self.scratch))))
        makers += [lambda kind=kind: neighbours.ForeignTimer(self.foreign, kind) for kind in ("thread", "process")]
        return [make for make in makers if not self.options.tool or make().name in self.options.tool]

    def run(self, jdk, tool, order, profiled):
        """Runs a JVM with the tool, and with the profiler if `profiled`; returns what both delivered."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        recording = folder / "recording.tickwalk"
        ours = [f"-agentpath:{self.agent}=interval={INTERVAL},file={recording}"] if profiled and order != "ours later" else []
        theirs = tool.options(folder) if order != "theirs later" else []
        options = [*ours, *theirs] if order == "ours first" else [*theirs, *ours]
        program = [word.format(seconds=self.options.seconds) for word in tool.program]
        child = Child(java(tool.jdk or jdk), [*options, "-cp", self.classes, *program], folder)
        found, attached = [], None
        tool.accompany(child)
        try:
            if order in LATER:
                while child.is_running() and cpu_seconds(child.pid) < LATER_CPU_SECONDS:
                    time.sleep(0.05)
            if order == "theirs later":
                tool.load(child, folder)
            elif order == "ours later" and profiled:
                attached = subprocess.Popen([self.tickwalk, "attach", "--agent", self.agent, "--interval", INTERVAL, "-o", recording,
                                             str(child.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except (OSError, ValueError) as error:
            found.append(str(error))
        child.wait(self.options.timeout)
        wall = time.monotonic() - child.begin
        if attached:
            errors = attached.communicate(timeout=60)[1]
            if attached.returncode != 0:
                found.append(f"tickwalk attach: {errors[-300:]}")
        output = child.text("stdout") + child.text("stderr")
        found += child.complaints()
        result = {"count": tool.count(folder, output), "wall": wall, "found": found, "folder": folder}
        if profiled and not found:
            result["ours"] = self.quality(recording, found)
        return result

    def quality(self, recording, found):
        """Returns what became of the samples of Java threads; adds to `found` what is wrong with the account."""
        try:
            summary = account.of_recording(self.tickwalk, recording)
        except ValueError as error:
            found.append(str(error))
            return None
        found += account.complaints(summary)
        stops = collections.Counter(summary["stops"])
        for reason in ("end_of_stack", "end_of_continuation", "end_past_thaw", "not_copied", "native_cut"):
            del stops[reason]
        stops += collections.Counter()
        done = subprocess.run([self.tickwalk, "export", "--format", "collapsed", "--unit", "samples", recording], check=True,
                              capture_output=True, text=True)
        stacks = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
        missing = [(stack, int(count)) for stack, count in stacks if MISSING in stack and COPYING not in stack]
        java_samples = sum(thread["samples"] for thread in summary["threads"] if thread["kind"] == "java")
        return {"java": java_samples, "samples": summary["samples"], "stops": stops,
                "missing": sum(count for _, count in missing),
                "examples": [stack[-300:] for stack, _ in sorted(missing, key=lambda pair: -pair[1])[:3]],
                "cpu": summary["process_cpu_ns"] / 1e9}

    def cell(self, jdk, make, order, baseline):
        """Returns the row of a cell and what is wrong with it; `baseline` is the tool's delivery alone."""
        tool = make()
        result = self.run(jdk, tool, order, profiled=True)
        found, ours = result["found"], result.get("ours")
        if result["count"] is None:
            found.append(f"{tool.name} delivered nothing")
        share = delivered(result, tool) / baseline if baseline and result["count"] else 0
        if share < LEAST_DELIVERED:
            found.append(f"{tool.name} delivers {share:.0%} {SHORT}")
        cells = ["-"] * 5
        if ours:
            cut, missing = (sum(ours["stops"].values()) / max(ours["java"], 1), ours["missing"] / max(ours["java"], 1))
            if cut >= MOST_LOST or not ours["java"]:
                found.append(f"{cut:.2%} of {ours['java']} samples of Java threads are incomplete: {dict(ours['stops'])}")
            if missing >= MOST_LOST:
                found.append(f"{missing:.2%} of the stacks have {MISSING}: {ours['examples']}")
            cells = [ours["java"], f"{cut:.3%}", f"{missing:.3%}", result["count"], f"{share:.0%}"]
        if found and self.options.keep:
            kept = self.options.keep / f"{jdk}-{tool.name}-{order}".replace(" ", "-")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(result["folder"], kept)
        shutil.rmtree(result["folder"], ignore_errors=True)
        complain(f"JDK {jdk} {tool.name}, {order}: {'; '.join(found) or 'passed'}")
        return f"| {jdk} | {tool.name} | {order} | {' | '.join(map(str, cells))} | {'FAILED' if found else 'passed'} |", found


def delivered(result, tool):
    """Returns how much the tool delivered per second of what its work is proportional to."""
    # All runs burn the same CPU time.
    return result["count"] / (result["wall"] if tool.per == "wall" else 1)


def orders(tool):
    if isinstance(tool, neighbours.ForeignTimer):
        # The program starts its timer itself.
        return ["ours first", "ours later"]
    return [order for order in ORDERS if order != "theirs later" or tool.loads_later]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--tool", action="append")
    parser.add_argument("--order", action="append", choices=ORDERS)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--async-profiler", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    check_library(options.async_profiler)
    if not options.async_profiler:
        complain("SKIPPED async-profiler, all cells: give its library with --async-profiler")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    with tempfile.TemporaryDirectory(prefix="tickwalk-coexistence-") as scratch:
        bench = Bench(options, scratch)

        def run_tool(jdk, make):
            alone = {}
            for order in options.order or orders(make()):
                # Alone, a tool starts with the JVM or later; the other orders are the same.
                start = order == "theirs later"
                for _ in range(ATTEMPTS):
                    if start not in alone:
                        result = bench.run(jdk, tool := make(), "theirs later" if start else "theirs first", profiled=False)
                        alone[start] = delivered(result, tool) if result["count"] else 0
                    row, found = bench.cell(jdk, make, order, alone[start])
                    # Other processes may have delayed one of the two runs: both are repeated.
                    if not found or not all(SHORT in text for text in found):
                        break
                    del alone[start]
                rows.append(row)
                failed.extend(f"{row.split('|')[1:4]}: {text}" for text in found)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            pending = [pool.submit(run_tool, jdk, make) for jdk in options.jdk or JDKS for make in bench.tools(jdk)]
            for future in pending:
                future.result()
    print("| JDK | tool | order | samples of Java threads | incomplete | native frames missing | tool delivered | of alone | |")
    print("|---" * 9 + "|")
    print("\n".join(sorted(rows)))
    print("\n" + "\n".join(f"- {text}" for text in failed))
    if failed or not rows:
        fail(f"{len(failed)} complaints in {len(rows)} cells")


if __name__ == "__main__":
    main()
