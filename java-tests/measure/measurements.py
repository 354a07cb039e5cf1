"""Measures what the project promises and writes design/measured/measurements.md from this one run.

  python3 java-tests/measure measurements [--quick] [--only SECTION]... [--also SECTION]... [--async-profiler LIBRARY] [--no-build] [--page FILE]

Builds the release binaries and benchmarks first, unless --no-build is given. A full run then takes up to 20 minutes on
two idle processors, --quick up to 6; the figures of a quick run are rough. --only restricts the run to sections, by the
names that --help lists; --also adds a section that takes long or needs a large download. A section that is left out or
cannot run is named in the page with the reason.
--async-profiler names that profiler's library, which is then measured beside Tickwalk.
--page writes to another file; --page - prints the page.
Prerequisites: java-tests/fetch (--web for the sections web and latency, --spark for spark); nothing else should run on the
machine.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import tempfile
import time

from measure import harness
from measure import machine
from measure.harness import JDKS, REPOSITORY, complain, spread

BUILD = [
    "cargo build --release -p agent -p cli",
    f"CARGO_TARGET_DIR={os.environ.get('CARGO_TARGET_DIR', 'target')}/agct cargo build --release -p agct",
    "cargo bench --no-run -p queue -p stackwalk -p collector",
]
AGCT = re.compile(r"agct comparison: (\d+) samples, frames p50 (\d+) .*?; cycles ours p50 (\d+) p99 (\d+) max (\d+); "
                  r"AsyncGetCallTrace p50 (\d+) p99 (\d+) max (\d+); it failed in (\d+)")
ATTACHED_SECONDS = 1


class NotMeasured(Exception):
    """Why a section has no figures."""


class Measurement:
    """One run: its options, its scratch folder, and the recordings that several sections use."""

    def __init__(self, options, scratch):
        self.quick = options.quick
        self.rival = f" --async-profiler {shlex.quote(options.async_profiler)}" if options.async_profiler else ""
        self.scratch = pathlib.Path(scratch)
        self.recordings = None

    def choose(self, full, quick):
        return quick if self.quick else full

    def tool(self, command, may_fail=False):
        """Runs a shell command in the repository and returns its standard output.

        A command that may fail compares its figures with promises; it ends with 1, and its output counts, if one is broken.
        """
        complain(command)
        done = subprocess.run(command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, errors="replace")
        if done.returncode != 0 and not (may_fail and done.returncode == 1 and done.stdout):
            raise NotMeasured(f"`{command}` failed: {reason(done.stderr)}")
        return done.stdout

    @property
    def classes(self):
        if not (self.scratch / "classes").exists():
            harness.compile_workloads(self.scratch)
        return self.scratch / "classes"

    def programs(self):
        """Yields JDK, name and java arguments of the programs that are recorded."""
        size = self.choose("full", "short")
        for jdk in self.choose(["17", "25"], ["25"]):
            for name in ("h2", "clojure"):
                yield jdk, name, harness.program_arguments(name, size, self.scratch)
        for jdk in self.choose(JDKS, ["25"]):
            yield jdk, "DeepRecursion 130", ["-cp", str(self.classes), "DeepRecursion", self.choose("4", "2"), "130"]

    def recorded(self):
        """Returns JDK, program, summary and size of the recording of each recorded program; runs them once."""
        if self.recordings is None:
            self.recordings = []
            tickwalk, summary = harness.binary("tickwalk"), self.scratch / "summary.json"
            recording = self.scratch / "recording.tickwalk"
            for jdk, name, arguments in self.programs():
                complain(f"tickwalk record, JDK {jdk} {name}")
                run_checked([tickwalk, "record", "--summary", summary, "-o", recording, "--", harness.java(jdk), *arguments])
                self.recordings.append((jdk, name, json.loads(summary.read_text()), recording.stat().st_size))
        return self.recordings


def run_checked(command):
    """Runs a command; returns its standard error."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise NotMeasured(f"{shlex.join(map(str, command))[:200]} ended with status {done.returncode}: {reason(done.stderr)}")
    return done.stderr


def reason(errors):
    """Returns the line of a command's standard error that names the error, else the last one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if line.startswith("error")), lines[-1])


def code(*lines):
    return ["```sh", *lines, "```", ""]


RECORD = "tickwalk record --summary SUMMARY.json -o FILE.tickwalk -- java PROGRAM"


def handler(run):
    """Time in the signal handler"""
    yield from code(RECORD)
    yield "Cycles of the time stamp counter in the signal handler. Percentiles are upper bounds of buckets an eighth wide."
    yield ""
    yield "| JDK | program | samples | p50 | p99 | max |"
    yield "|---|---|---|---|---|---|"
    for jdk, name, summary, _ in run.recorded():
        cycles = summary["handler_cycles"]
        yield f"| {jdk} | {name} | {summary['samples']:,} | {cycles['p50']:,} | {cycles['p99']:,} | {cycles['max']:,} |"


def agct(run):
    """AsyncGetCallTrace in the same handler"""
    library = harness.binary("libtickwalk_agct.so", "agct/release", f"`{BUILD[1]}`")
    yield from code(BUILD[1], "java -agentpath:target/agct/release/libtickwalk_agct.so=file=FILE.tickwalk PROGRAM")
    yield ("After the capture the handler calls AsyncGetCallTrace for the same sample, which finds the caches warm. Cycles of"
           " the time stamp counter; the ratio is that of the medians.")
    yield ""
    yield ("| JDK | program | frames p50 | capture p50 / p99 / max | AsyncGetCallTrace p50 / p99 / max | ratio |"
           " AsyncGetCallTrace failed |")
    yield "|---|---|---|---|---|---|---|"
    for jdk, name, arguments in run.programs():
        complain(f"AsyncGetCallTrace, JDK {jdk} {name}")
        errors = run_checked([harness.java(jdk), f"-agentpath:{library}=file={run.scratch}/agct.tickwalk", *arguments])
        found = AGCT.search(errors)
        if not found:
            raise NotMeasured(f"the comparison library printed no result: {errors[-300:]}")
        samples, frames, *cycles, failed = (int(text) for text in found.groups())
        ours, theirs = (" / ".join(f"{value:,}" for value in cycles[at:at + 3]) for at in (0, 3))
        yield f"| {jdk} | {name} | {frames} | {ours} | {theirs} | {cycles[3] / cycles[0]:.1f} | {failed:,} of {samples:,} |"


def cost_of(run, options):
    """Yields a command of java-tests/measure/cost.py and its tables."""
    command = f"python3 java-tests/measure cost {options} --check"
    yield from code(command + (" --async-profiler LIBRARY" if run.rival else ""))
    yield run.tool(command + run.rival, may_fail=True)


def cost(run):
    """Cost of a sample and of the whole program

    At 1ms a thread is sampled at every tick of the kernel. RandomRecursion is the worst case: 150 to 250 frames, hardly two
    stacks alike. The last table compares with what the project promises (`java-tests/measure/claims.py`).
    """
    yield from cost_of(run, run.choose(
        "--jdk 17 --jdk 25 --program h2 --program RandomRecursion --rounds 3 --seconds 7 --starts 0 --without jfr",
        "--jdk 25 --program h2 --program RandomRecursion --rounds 1 --seconds 7 --size short --starts 0 --without jfr"))


def start(run):
    """Start of a JVM

    Promise: at most 3 ms longer on every JDK.
    """
    yield from cost_of(run, run.choose(
        "--jdk 11 --jdk 17 --jdk 21 --jdk 25 --program none --starts 15 --interval 1ms --without jfr",
        "--jdk 25 --program none --starts 5 --interval 1ms --without jfr"))


def attach(run):
    """Attaching to a running JVM"""
    yield from code(f"tickwalk attach --duration {ATTACHED_SECONDS}s PID")
    yield (f"Wall time of the command beyond the {ATTACHED_SECONDS} s of the profile: it finds the JVM, loads the agent, starts and"
           " ends the profile, and prints the report.")
    yield ""
    yield "| JDK | profiles | median | middle half | range |"
    yield "|---|---|---|---|---|"
    tickwalk, rounds = harness.binary("tickwalk"), run.choose(7, 3)
    for jdk in run.choose(["17", "25"], ["25"]):
        complain(f"tickwalk attach, JDK {jdk}")
        program = subprocess.Popen([harness.java(jdk), "-cp", run.classes, "Burner", "600"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        try:
            program.stdout.readline()
            times = []
            for _ in range(rounds):
                begin = time.monotonic()
                run_checked([tickwalk, "attach", "--duration", f"{ATTACHED_SECONDS}s", "-o", run.scratch / "attach.tickwalk",
                             str(program.pid)])
                times.append(time.monotonic() - begin - ATTACHED_SECONDS)
        finally:
            program.kill()
            program.wait()
        yield f"| {jdk} | {rounds} | {spread(times, lambda value: f'{1000 * value:.0f} ms')} |"


def memory(run):
    """Resident memory"""
    command = run.choose("python3 java-tests/measure memory --jdk 17 --jdk 25 --pairs 3", "python3 java-tests/measure memory --jdk 25 --pairs 1")
    yield from code(command)
    yield run.tool(command)


def walk(run):
    """Walking a recorded stack"""
    command = "cargo bench -q -p stackwalk"
    yield from code(command)
    yield run.tool(command)


def stacks(run):
    """Complete stacks"""
    file = run.scratch / "matrix.jsonl"
    command = "python3 java-tests/measure matrix " + run.choose("--flags default --size short", "--quick --jdk 25")
    yield from code(command)
    yield ("Share of samples of Java threads whose stack ends at a true root; one sample at every tick of the kernel. The full"
           " matrix is in `design/measured/matrix.md`.")
    yield ""
    try:
        run.tool(f"{command} --json {file}")
    except NotMeasured:
        # The share may be below the limit of the tests; the page shows it.
        if not file.exists():
            raise
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    yield "| JDK | runs | samples | complete | other stop reasons | threads without Java, complete |"
    yield "|---|---|---|---|---|---|"
    for jdk in sorted({row["jdk"] for row in rows}, key=int):
        mine = [row for row in rows if row["jdk"] == jdk]
        samples, rooted = (sum(row[key] for row in mine) for key in ("java_samples", "rooted"))
        native, native_rooted = (sum(row[key] for row in mine) for key in ("native_samples", "native_rooted"))
        stops = sum((collections.Counter(row["stops"]) for row in mine), collections.Counter())
        reasons = ", ".join(f"{name} {count}" for name, count in stops.most_common()) or "none"
        yield (f"| {jdk} | {len(mine)} | {samples:,} | {rooted / max(samples, 1):.2%} | {reasons} |"
               f" {native_rooted / max(native, 1):.2%} of {native:,} |")
    yield ""
    workloads = sorted({row["workload"] for row in rows})
    samples, rooted = (sum(row[key] for row in rows) for key in ("java_samples", "rooted"))
    yield f"All: {rooted:,} of {samples:,} samples of {len(workloads)} workloads: {', '.join(workloads)}."


def agreement(run):
    """Agreement with AsyncGetCallTrace"""
    command = "python3 java-tests/measure differential --quick" + run.choose("", " --jdk 25")
    yield from code(command)
    yield "Lists of methods at the same samples; where they differ, the rules of `java-tests/agct` decide which one is right."
    yield ""
    yield run.tool(command).split("\n\n")[0]


def account(run):
    """The account of the CPU time"""
    yield from code(RECORD)
    yield ("Explained: sampled time as a share of the kernel's CPU time. Unexplained: CPU time of the process that is in no"
           " thread's account, for example of ending threads and of the JVM's shutdown. Every account closes exactly; a test checks it.")
    yield ""
    yield "| JDK | program | CPU time | explained | lost | unfinished | unexplained |"
    yield "|---|---|---|---|---|---|---|"
    largest = 0
    for jdk, name, summary, _ in run.recorded():
        cpu = summary["cpu_ns"]
        accounted = cpu["kernel"] + cpu["before_timer"] + summary["sampler"]["cpu_ns"]
        missing = (summary["process_cpu_ns"] - accounted) / summary["process_cpu_ns"]
        largest = max(largest, abs(missing))
        yield (f"| {jdk} | {name} | {summary['process_cpu_ns'] / 1e9:.2f} s | {summary['explained']:.2%} |"
               f" {sum(cpu['lost'].values()) / 1e6:.0f} ms | {cpu['unfinished'] / 1e6:.0f} ms | {missing:.2%} |")
    yield ""
    yield f"Largest difference between the clock of the process and the accounts: {largest:.2%}."


def queue(run):
    """The queue between handler and sampler"""
    command = "cargo bench -q -p queue"
    yield from code(command)
    yield "Nanoseconds per operation with warm caches."
    yield ""
    yield "| operation | median | p10 | p90 | max |"
    yield "|---|---|---|---|---|"
    for name, *values in re.findall(r"^(\S.*?) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", run.tool(command), re.MULTILINE):
        yield f"| {name} | " + " | ".join(values) + " |"


def idle(run):
    """Idle threads"""
    command = run.choose("python3 java-tests/measure idle-cost --runs 2 --seconds 8", "python3 java-tests/measure idle-cost --runs 1 --seconds 3 --idle 1990")
    yield from code(command)
    yield run.tool(command)


def store(run):
    """The collector's store"""
    for command in [
        f"SAMPLES={run.choose(5000000, 1000000)} cargo bench -q -p collector --bench store -- ingest",
        f"STACKS={run.choose(1000, 200)} cargo bench -q -p collector --bench store -- query",
    ]:
        yield from code(command)
        yield from ["```text", run.tool(command).strip(), "```", ""]


def size(run):
    """Sizes"""
    yield "Bytes on disk of the release binaries, and bytes of a recording per sample, dictionary and statistics included."
    yield ""
    yield "| file | MB |"
    yield "|---|---|"
    for name in ("libtickwalk.so", "tickwalk"):
        path = harness.binary(name)
        yield f"| `{name}` | {path.stat().st_size / 1e6:.1f} |"
        stripped = run.scratch / name
        if subprocess.run(["strip", "-o", stripped, path], capture_output=True).returncode == 0:
            yield f"| `{name}`, stripped | {stripped.stat().st_size / 1e6:.1f} |"
    yield ""
    yield "| JDK | program | samples | bytes of a recording per sample |"
    yield "|---|---|---|---|"
    for jdk, name, summary, length in run.recorded():
        yield f"| {jdk} | {name} | {summary['samples']:,} | {length / max(summary['samples'], 1):.0f} |"


def spark(run):
    """Cost on Spark SQL

    Two processors, five queries from the start of the JVM to its end: class loading, generated code, compilation.
    """
    yield from cost_of(run, "--jdk 17 --jdk 21 --program spark --starts 0 --without jfr"
                       + run.choose(" --rounds 3", " --rounds 1"))


def web(run):
    """Cost on a web server

    Tomcat at 400 requests a second.
    """
    yield from cost_of(run, "--jdk 25 --program web --starts 0 --without jfr" + run.choose(" --rounds 3", " --rounds 1"))


def latency(run):
    """Cost of a request

    Latency of the same server from the scheduled moment of a request to its answer.
    """
    command = "python3 java-tests/measure latency --jdk 25" + run.choose(" --pairs 20", " --pairs 3 --seconds 5")
    yield from code(command + (" --async-profiler LIBRARY" if run.rival else ""))
    yield run.tool(command + run.rival)


SECTIONS = [handler, agct, cost, start, attach, memory, walk, stacks, agreement, account, queue, idle, store, size]
EXTRA = [spark, web, latency]


def build():
    for command in BUILD:
        complain(command)
        if subprocess.run(command, shell=True, cwd=REPOSITORY).returncode != 0:
            complain(f"`{command}` failed; the sections that need it are not measured")


def measured(section, run):
    """Returns the lines of a section, or the reason why it has no figures."""
    lines = heading(section)
    begin, begin_cpu = time.monotonic(), children_cpu()
    try:
        lines += [line.rstrip() for text in section(run) for line in text.split("\n")]
    except (NotMeasured, OSError, KeyError, SystemExit) as error:
        cause = str(error).removeprefix("measure: ")
        complain(f"{section.__name__} is not measured: {cause}")
        lines += [f"Not measured: {cause.rstrip('.')}."]
    complain(f"{section.__name__}: {time.monotonic() - begin:.0f} s, {children_cpu() - begin_cpu:.0f} s of CPU time")
    return lines + [""]


def heading(section):
    title, _, text = section.__doc__.partition("\n\n")
    return [f"## {title}", "", *([" ".join(text.split()), ""] if text else [])]


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    names, extra = ([section.__name__ for section in sections] for sections in (SECTIONS, EXTRA))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=names + extra, metavar="SECTION", help=", ".join(names + extra))
    parser.add_argument("--also", action="append", default=[], choices=extra, metavar="SECTION", help=", ".join(extra))
    parser.add_argument("--async-profiler", metavar="LIBRARY", help="libasyncProfiler.so, 4.0 or newer")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--page", default=str(REPOSITORY / "design/measured/measurements.md"))
    options = parser.parse_args()
    if options.async_profiler and not pathlib.Path(options.async_profiler).is_file():
        harness.fail(f"--async-profiler {options.async_profiler}: no such file")
    if not options.no_build:
        build()
    load, begin, date = os.getloadavg(), time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
    body = []
    with tempfile.TemporaryDirectory(prefix="tickwalk-measure-") as scratch:
        run = Measurement(options, scratch)
        for section in SECTIONS + EXTRA:
            name = section.__name__
            if options.only and name not in options.only + options.also:
                body += [*heading(section), "Not measured: left out by `--only`.", ""]
            elif name in extra and name not in (options.only or []) + options.also:
                body += [*heading(section), f"Not measured: only with `--also {name}`.", ""]
            else:
                body += measured(section, run)
    minutes = (time.monotonic() - begin) / 60
    chosen = [(option, name) for option in ("only", "also") for name in getattr(options, option) or []]
    shown = ["--quick"] * options.quick + [word for option, name in chosen for word in (f"--{option}", name)]
    shown += ["--async-profiler", "LIBRARY"] if options.async_profiler else []
    page = [
        "# Measurements", "",
        "This page is written by one run of one command; earlier runs are in the history of this file.", "",
        *code(shlex.join(["python3", "java-tests/measure", "measurements", *shown])),
        *(["This is a quick run: its figures are rough.", ""] if options.quick or options.only else []),
        *machine.lines(),
        f"- date: {date:%Y-%m-%d %H:%M} UTC; duration: {minutes:.0f} minutes after the build;"
        f" load average at the start: {load[0]:.1f}",
        "",
        "Spreads are the middle half (first to third quartile) and the range of all values.", "",
        *body,
    ]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(page)).rstrip() + "\n"
    if options.page == "-":
        print(text, end="")
    else:
        pathlib.Path(options.page).write_text(text)


if __name__ == "__main__":
    main()
