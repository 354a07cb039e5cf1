"""Measures the share of Java stacks that are walked to a true root, by JDK, workload and JVM flags.

  python3 java-tests/measure matrix [--quick] [--jdk NAME]... [--workload NAME]... [--flags NAME]...
                    [--seconds S] [--jobs N] [--size short|full] [--json FILE] [--places FILE] [--tables FILE]...
                    [--page FILE] [--agent-option NAME=VALUE]... [--compare]

Each run is one workload of java-tests/workloads (S seconds of CPU time, 2 by default) or one real program (h2,
clojure, closure; see java-tests/fetch --programs) on one JDK with one set of flags, under `tickwalk record` at an
interval of 1 ms, which samples at every tick of the kernel. Threads without Java (collectors, compilers) are counted
separately.

--jdk, --workload and --flags may be repeated; the default is all workloads, all flags, and the four JDKs of
java-tests/fetch. Other JDKs have the names of their folders, for example 25-trixie or 28-sid (java-tests/fetch
--more-jdks).
The tables are printed as Markdown; progress and failures go to standard error.
--json appends one JSON object per finished run to a file, and skips the runs that the file holds.
--places lets the agents describe every new place where a walk ended early (debug=stops, which needs an agent built with
--features agent/hooks), and appends the descriptions to a file, each after a line that names the run.
--agent-option adds an option of the agent.
--compare walks each stack without the steps of earlier walks as well (debug=compare-walks, which needs agent/hooks too),
prints the counts, and fails on a difference.
--tables runs nothing and prints the tables of such JSON files; the later of two equal runs counts.
--page writes the tables into a page, between its lines `<!-- matrix -->` and `<!-- end of matrix -->`:

  python3 java-tests/measure matrix --json matrix.jsonl --page design/measured/matrix.md

--quick makes a small selection of runs in about a minute, and fails if less than 99.5 % of the samples end at a true
root. A full run is some hundreds of runs of 3 to 10 seconds of CPU time, which take an hour on two idle processors. --jobs is
the number of concurrent runs (default: one per processor) and does not change the shares.
Prerequisites: java-tests/fetch --programs, cc and cargo build --release; TICKWALK_BIN_DIR names another folder of
binaries.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

from measure.harness import HERE, JDKS, PROGRAMS, binary, compile_workloads, complain, jdk_folder, program_arguments

# Workload, and the oldest JDK it runs on. A workload whose source is missing is skipped with a warning.
WORKLOADS = {
    "DeepRecursion": 11,
    "Megamorphic": 11,
    "Lambdas": 11,
    "RegexStrings": 11,
    "NativeHeavy": 11,
    "Exceptions": 11,
    "DeoptStorm": 11,
    "AllocHeavy": 11,
    "JniHeavy": 11,
    "ClassChurn": 11,
    "Panama": 21,
    "VirtualThreads": 21,
    "FrozenStack": 21,
    "h2": 11,
    "clojure": 11,
}
# Arguments after the seconds: milliseconds of a generation and generations between collections; depth and sleeps.
ARGUMENTS = {"ClassChurn": ["12", "3"], "FrozenStack": ["150", "20"]}
# Seconds of workloads that do a fixed amount of work, with SingleStep, which makes it take a thousand times as long.
STEPPED_SECONDS = {"FrozenStack": 0.01, "VirtualThreads": 0.01}
# Libraries of java-tests/workloads/native whose paths are arguments of a workload, and how they are compiled.
LIBRARIES = {"JniHeavy": ["jniheavy", "jnilate"], "Panama": ["panama"]}
CC_OPTIONS = ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall"]
PAGE_MARKS = ("<!-- matrix -->\n", "<!-- end of matrix -->\n")
ALL_FLAGS = ["default", "Xint", "Xcomp", "C1", "OneHeap", "Serial", "Parallel", "G1", "ZGC", "Shenandoah", "Compact",
             "Preview", "FramePointer", "NoOSR", "NoAVX", "NoSHA", "AOTCache", "SingleStep"]
# Share of true roots below which a cell is listed with its stop reasons: by flags, and for other flags.
MIN_SHARE = {"default": 0.9995}
MIN_SHARE_OTHERWISE = 0.995
# The runs of --quick: enough to detect a broken rule, on every JDK.
QUICK = [("RegexStrings", "default"), ("DeoptStorm", "default"), ("Exceptions", "default"), ("clojure", "default"),
         ("Megamorphic", "C1"), ("Lambdas", "Xint"), ("Lambdas", "OneHeap")]
QUICK_SHARE = 0.995
QUICK_SAMPLES = 5000


def flags_of(name, jdk):
    """Returns the JVM options of a set of flags, or None if this JDK does not have them."""
    jdk = version(jdk)
    experimental = ["-XX:+UnlockExperimentalVMOptions"]
    known = {
        "default": [],
        "Xint": ["-Xint"],
        "Xcomp": ["-Xcomp"],
        "C1": ["-XX:TieredStopAtLevel=1"],
        "OneHeap": ["-XX:-SegmentedCodeCache"],
        "Serial": ["-XX:+UseSerialGC"],
        "Parallel": ["-XX:+UseParallelGC"],
        "G1": ["-XX:+UseG1GC"],
        # Experimental in 11, without generations up to 20, always with generations from 23 on.
        "ZGC": experimental + ["-XX:+UseZGC"] + (["-XX:+ZGenerational"] if jdk == 21 else []),
        "Shenandoah": experimental + ["-XX:+UseShenandoahGC"],
        "Compact": ["-XX:+UseCompactObjectHeaders"] if jdk >= 25 else None,
        # Classes of the JDK become value classes, with calling conventions and adapters of their own.
        "Preview": ["--enable-preview"] if jdk >= 28 else None,
        "FramePointer": ["-XX:+PreserveFramePointer"],
        # Loops are entered interpreted and left compiled by default.
        "NoOSR": ["-XX:-UseOnStackReplacement"],
        # Other routines for copies, searches and digests.
        "NoAVX": ["-XX:UseAVX=0"],
        "NoSHA": ["-XX:-UseSHA"],
        # The cache of a first run: classes loaded and linked ahead of time, in an archive, with profiles for the
        # compilers.
        "AOTCache": ["-XX:AOTCache={folder}/cache.aot"] if jdk >= 25 else None,
        # An agent is called at every bytecode.
        "SingleStep": ["-agentpath:{scratch}/libsinglestep.so"],
    }
    if name not in known:
        sys.exit(f"matrix: unknown flags '{name}' (known: {', '.join(known)})")
    return known[name]


def version(jdk):
    """Returns the feature release of a JDK's name: 25 of '25-trixie'."""
    return int(re.match(r"\d+", jdk)[0])


class Matrix:
    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.jdks = jdk_folder()
        self.tickwalk = binary("tickwalk")
        self.classes = compile_workloads(scratch)
        for name in sum(LIBRARIES.values(), []):
            source = HERE / f"workloads/native/{name}.c"
            subprocess.run(["cc", *CC_OPTIONS, "-o", scratch / f"lib{name}.so", source], check=True)
        if any(flags == "SingleStep" for _, flags in options.pairs):
            self.compile_agent("singlestep")
        # An AOT cache is made for archives only.
        self.archive = scratch / "classes.jar"
        with zipfile.ZipFile(self.archive, "w") as archive:
            for file in sorted(self.classes.rglob("*.class")):
                archive.write(file, file.relative_to(self.classes))
        self.lock = threading.Lock()
        self.rows = read_rows([options.json]) if options.json and options.json.exists() else []
        self.old = len(self.rows)
        self.planned = 0
        self.start = time.monotonic()

    def compile_agent(self, name):
        """Compiles a JVMTI agent of java-tests/workloads/native with the headers of a JDK that has them."""
        headers = next((jdk / "include" for jdk in sorted(self.jdks.iterdir()) if (jdk / "include/jvmti.h").exists()), None)
        if headers is None:
            sys.exit(f"matrix: no jvmti.h in {self.jdks}/*/include: run java-tests/fetch")
        command = ["cc", *CC_OPTIONS, "-I", headers, "-I", headers / "linux", "-o", self.scratch / f"lib{name}.so",
                   HERE / f"workloads/native/{name}.c"]
        subprocess.run(command, check=True)

    def jvm_options(self, jdk, flags, workload, folder):
        """Returns the JVM options of a run, whose files are in `folder`."""
        options = [option.format(folder=folder, scratch=self.scratch) for option in flags_of(flags, jdk)]
        if flags == "AOTCache":
            training = [self.jdks / jdk / "bin/java", f"-XX:AOTCacheOutput={folder}/cache.aot",
                        *self.command(workload, flags, folder)]
            trained = subprocess.run(training, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
            if not (folder / "cache.aot").exists():
                sys.exit(f"matrix: JDK {jdk} makes no AOT cache of {workload}: {(trained.stdout + trained.stderr)[-600:]}")
            # Without the archive the JVM would run on.
            options.append("-XX:AOTMode=on")
        return options

    def exists(self, workload):
        if workload in PROGRAMS:
            return (HERE / ".cache/programs" / workload).is_dir()
        return (HERE / f"workloads/{workload}.java").is_file()

    def command(self, workload, flags, folder):
        """Returns what follows `java` and its options."""
        if workload not in PROGRAMS:
            libraries = [str(self.scratch / f"lib{name}.so") for name in LIBRARIES.get(workload, [])]
            classes = self.archive if flags == "AOTCache" else self.classes
            stepped = STEPPED_SECONDS if flags == "SingleStep" else {}
            seconds = stepped.get(workload, self.options.seconds)
            return ["-cp", str(classes), workload, str(seconds), *ARGUMENTS.get(workload, []),
                    *libraries]
        size = "short" if flags in ("Xint", "Xcomp", "SingleStep") else self.options.size
        return program_arguments(workload, size, folder)

    def agent_options(self):
        options = (["debug=stops"] if self.options.places else []) + (self.options.agent_option or [])
        options += ["debug=compare-walks"] if self.options.compare else []
        return [word for option in options for word in ("--agent-option", option)]

    def run(self, jdk, workload, flags):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        summary = folder / "summary.json"
        command = [
            self.tickwalk, "record", "--interval", "1ms", "--summary", summary,
            "-o", folder / "recording.tickwalk", *self.agent_options(), "--",
            self.jdks / jdk / "bin/java", *self.jvm_options(jdk, flags, workload, folder),
            *self.command(workload, flags, folder),
        ]
        row = {"jdk": jdk, "workload": workload, "flags": flags, "java_samples": 0, "rooted": 0, "stops": {},
               "native_samples": 0, "native_rooted": 0, "native_stops": {}}
        log = ""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=600)
            row["exit"], log = done.returncode, done.stderr
            if done.returncode != 0:
                complain(f"JDK {jdk} {workload} {flags}: exit {done.returncode}: {done.stderr[-600:]}")
        except subprocess.TimeoutExpired:
            row["exit"] = "timeout"
            complain(f"JDK {jdk} {workload} {flags}: not finished after 600 s")
        try:
            self.count(row, json.loads(summary.read_text()))
        except (OSError, ValueError) as error:
            row["exit"] = f"no summary: {error}"
        shutil.rmtree(folder, ignore_errors=True)
        with self.lock:
            self.rows.append(row)
            if self.options.places:
                self.note_places(row, log)
            if self.options.compare:
                self.note_comparison(row, log)
            if self.options.json:
                with self.options.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            done = len(self.rows) - self.old
            left = (time.monotonic() - self.start) / done * (self.planned - done) / 60
            complain(f"{done} of {self.planned}, {left:.0f} min left: JDK {jdk} {workload} {flags}: {cell(row)} "
                     f"{describe(row['stops'])}")

    def note_places(self, row, log):
        # A description is a line of the log and the indented lines after it.
        places = re.findall(r"early stop (.*(?:\n  .*)*)", log)
        with self.options.places.open("a") as file:
            file.writelines(f"{' '.join(key(row))}\n  {place}\n" for place in places)

    @staticmethod
    def note_comparison(row, log):
        found = re.search(r"compared walks: (\d+) equal, (\d+) different, (\d+) apart; ids: \d+ equal, (\d+) different", log)
        equal, different, apart, misnamed = map(int, found.groups()) if found else (0, 0, 0, 0)
        row["compared"] = {"equal": equal, "different": different + misnamed, "apart": apart}
        if not found or different or misnamed:
            complain(f"JDK {' '.join(key(row))}: walks by known steps differ from walks without: {log[-2000:]}")

    @staticmethod
    def count(row, summary):
        stops = dict(summary["stops"])
        # Stop reasons are counted for all threads; cut stacks of threads without Java have reasons of their own.
        cut = {name: stops.pop(name, 0) for name in ("not_copied", "native_cut")}
        row["native_samples"] = sum(thread["samples"] for thread in summary["threads"] if thread["kind"] != "java")
        row["native_stops"] = {name: count for name, count in cut.items() if count}
        row["native_rooted"] = max(row["native_samples"] - sum(cut.values()), 0)
        row["past_thaw"] = stops.pop("end_past_thaw", 0)
        rooted = stops.pop("end_of_stack", 0) + stops.pop("end_of_continuation", 0) + row["past_thaw"]
        row["rooted"] = max(rooted - row["native_rooted"], 0)
        row["java_samples"] = row["rooted"] + sum(stops.values())
        row["stops"] = {name: count for name, count in stops.items() if count}
        row["explained"] = summary["explained"]
        row["handler_cycles"] = summary["handler_cycles"]

    def run_all(self):
        runs = []
        for jdk in self.options.jdk:
            if not (self.jdks / jdk / "bin/java").exists():
                complain(f"SKIPPED JDK {jdk}: not in {self.jdks} (run java-tests/fetch)")
                continue
            for workload, flags in self.options.pairs:
                known = self.exists(workload) and flags_of(flags, jdk) is not None
                if known and WORKLOADS.get(workload, PROGRAMS.get(workload, 11)) <= version(jdk):
                    runs.append((jdk, workload, flags))
        for workload in {workload for workload, _ in self.options.pairs if not self.exists(workload)}:
            complain(f"SKIPPED {workload}: missing (for programs run java-tests/fetch --programs)")
        known = {key(row) for row in self.rows if row["exit"] == 0}
        runs = [run for run in runs if run not in known]
        # Default flags first, programs last, otherwise in a fixed random order, so that an interrupted matrix has the
        # most important runs and a fair sample of the others.
        random.Random(1).shuffle(runs)
        runs.sort(key=lambda run: (ALL_FLAGS.index(run[2]) > 0, run[1] in PROGRAMS))
        self.planned = len(runs)
        complain(f"{len(runs)} runs, {self.options.jobs} at once")
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for future in [pool.submit(self.run, *run) for run in runs]:
                future.result()


def read_rows(paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def key(row):
    return row["jdk"], row["workload"], row["flags"]


def share(rows):
    samples = sum(row["java_samples"] for row in rows)
    return sum(row["rooted"] for row in rows) / samples if samples else None


def percent(value):
    return "-" if value is None else f"{100 * value:.2f}"


def cell(row):
    text = f"{percent(share([row]))} of {row['java_samples']}"
    return text if row["exit"] == 0 else f"{text} ({row['exit']})"


def describe(stops):
    ordered = sorted(stops.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count}" for name, count in ordered)


def table(rows, first, title):
    """Yields the lines of a table with the shares by `first` and by flags."""
    columns = [flags for flags in ALL_FLAGS if any(row["flags"] == flags for row in rows)]
    yield ""
    yield f"| {title} | samples | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 2) + "|"
    for name in sorted({first(row) for row in rows}):
        mine = [row for row in rows if first(row) == name]
        cells = [percent(share([row for row in mine if row["flags"] == flags])) for flags in columns]
        yield f"| {' '.join(name)} | {sum(row['java_samples'] for row in mine)} | " + " | ".join(cells) + " |"


def by_jdk(jdk):
    return version(jdk), jdk


def report(rows):
    """Yields the lines of all tables."""
    rows = list({key(row): row for row in rows}.values())
    rows.sort(key=lambda row: (by_jdk(row["jdk"]), row["workload"], ALL_FLAGS.index(row["flags"])))
    samples = sum(row["java_samples"] for row in rows)
    yield "Share of samples of Java threads, in percent, whose stack ends at a true root, by JDK, workload and flags."
    yield f"{len(rows)} runs, {samples} samples, {percent(share(rows))} % of them complete."
    main = [row for row in rows if row["jdk"] in JDKS]
    rest = [row for row in rows if row["jdk"] not in JDKS]
    yield from table(main, lambda row: (row["jdk"],), "JDK, all workloads")
    yield from table(main, lambda row: (row["workload"],), "workload, all JDKs")
    yield from table(main, lambda row: (row["jdk"], row["workload"]), "JDK, workload")
    if rest:
        yield from table(rest, lambda row: (row["jdk"],), "other builds, all workloads")
        yield from table(rest, lambda row: (row["workload"],), "workload, all other builds")
    yield ""
    yield "Stop reasons of the other stacks, by set of flags, all JDKs and workloads:"
    yield ""
    for flags in ALL_FLAGS:
        mine = [row for row in rows if row["flags"] == flags]
        stops = collections.Counter()
        for row in mine:
            stops.update(row["stops"])
        if mine:
            yield f"- {flags}: {describe(stops) or 'none'}"
    yield ""
    marked = sum(row.get("past_thaw", 0) for row in rows)
    yield f"Stacks that end at their root with a mark for frames being thawed: {marked}."
    yield ""
    native, cut = sum(row["native_samples"] for row in rows), collections.Counter()
    for row in rows:
        cut.update(row["native_stops"])
    if native:
        whole = sum(row["native_rooted"] for row in rows) / native
        yield f"Threads without Java: {percent(whole)} % of {native} samples are complete; cut: {describe(cut) or 'none'}."
        yield ""
    short = [row for row in rows if (share([row]) or 0) < MIN_SHARE.get(row["flags"], MIN_SHARE_OTHERWISE)]
    yield f"Runs below {100 * MIN_SHARE['default']:.2f} % (default flags) or {100 * MIN_SHARE_OTHERWISE} %: {len(short)} of {len(rows)}"
    yield ""
    for row in short:
        yield f"- {row['jdk']} {row['workload']} {row['flags']}: {cell(row)}; {describe(row['stops'])}"


def publish(rows, page):
    """Prints the tables, and writes them into a page if one is given."""
    text = "\n".join(report(rows)) + "\n"
    print(text, end="")
    if page:
        before, rest = page.read_text().split(PAGE_MARKS[0])
        after = rest.split(PAGE_MARKS[1])[1]
        page.write_text(before + PAGE_MARKS[0] + text + PAGE_MARKS[1] + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--flags", action="append")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--size", choices=["short", "full"], default="short")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--agent-option", action="append")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--places", type=pathlib.Path)
    parser.add_argument("--tables", action="append", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    if options.tables:
        return publish(read_rows(options.tables), options.page)
    options.jdk = options.jdk or JDKS
    pairs = QUICK if options.quick else [(w, f) for w in options.workload or WORKLOADS for f in options.flags or ALL_FLAGS]
    options.pairs = pairs
    with tempfile.TemporaryDirectory(prefix="tickwalk-matrix-") as scratch:
        matrix = Matrix(options, pathlib.Path(scratch))
        matrix.run_all()
    rows = matrix.rows
    publish(rows, options.page)
    failed = [row for row in rows if row["exit"] != 0]
    if failed:
        sys.exit(f"matrix: {len(failed)} of {len(rows)} runs failed")
    if options.compare:
        compared = collections.Counter()
        for row in rows:
            compared.update(row["compared"])
        print(f"\nwalks by known steps: {compared['equal']} equal to walks without, {compared['different']} different, "
              f"{compared['apart']} between which the VM may have freed code")
        if compared["different"] or not compared["equal"]:
            sys.exit("matrix: walks by known steps differ from walks without, or none was compared")
    if options.quick:
        samples, rooted = sum(row["java_samples"] for row in rows), share(rows) or 0
        print(f"\nquick: {rooted:.4%} of {samples} samples end at a true root; at least {QUICK_SHARE:.2%} are required")
        if samples < QUICK_SAMPLES or rooted < QUICK_SHARE:
            sys.exit(f"matrix: less than {QUICK_SHARE:.2%} of at least {QUICK_SAMPLES} samples")


if __name__ == "__main__":
    main()
