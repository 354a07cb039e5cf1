"""Measures what profilers cost: Tickwalk, async-profiler and JFR beside no profiler, in interleaved rounds.

  python3 java-tests/measure cost [--jdk NAME]... [--program NAME]... [--rounds N] [--seconds S] [--starts N] [--interval TIME]...
                  [--async-profiler LIBRARY] [--without PROFILER]... [--size full|short] [--keep FILE] [--check]

Each round runs the program once under every profiler, in an order that rotates. Prints Markdown: CPU time per sample,
CPU time and peak memory of the process as paired differences, and the start of a JVM that prints a line.

Programs: h2, clojure, closure, spark (java-tests/fetch --spark), web (Tomcat under load; java-tests/fetch --web), or a class
of java-tests/workloads, such as RandomRecursion, the worst case: stacks of 150 to 250 frames, hardly two of them alike.
--seconds is the CPU time of such a class and the time of the load; --rate its requests per second.
JFR takes part on JDK 25 and newer (jdk.CPUTimeSample), async-profiler if --async-profiler names its library.
All profilers run at the first --interval, Tickwalk at each. Heaps have a fixed size and are touched at the start, so
that peak memory does not depend on when the garbage collector runs.

--check compares the figures with the project's claims (java-tests/measure/claims.py) and exits with 1 if one fails. It then
measures at 1ms and 10ms, unless --interval is given.
--keep writes each run to a file and takes from it the runs that it has of the same builds and settings.
--program none leaves out the programs, --starts 0 the start.
Prerequisites: java-tests/fetch and cargo build --release. The figures need a machine where nothing else runs.
"""

import argparse
import pathlib
import sys
import tempfile

from measure import claims
from measure import jvm_run
from measure import profilers
from measure import web
from measure.harness import (HERE, PROGRAMS, Journal, compile_workloads, complain, fail, java, median_interval,
                     program_arguments, program_folder, rotated, with_interval)

DEFAULT_PROGRAMS = ["h2", "clojure", "RandomRecursion"]
# Heap of the programs that do not set theirs.
HEAP = "-Xmx256m"
WALK_COLUMNS = ["walk_p50_ns", "walk_p99_ns"]


class Cell:
    """The results of one program on one JDK: by profiler and interval a run for each round."""

    def __init__(self, first_interval):
        self.first_interval = first_interval
        self.results = {}

    def add(self, profiler, result):
        self.results.setdefault((profiler.name, profiler.interval), []).append(result)

    def runs(self, name, interval):
        return self.results.get((name, "" if name == "none" else interval), [])

    def differences(self, key, name, base, interval):
        """Returns the differences of the rounds between two profilers."""
        pairs = zip(self.runs(name, interval), self.runs(base, interval))
        return [value(a, key) - value(b, key) for a, b in pairs]

    def relative(self, key, name, base, interval):
        """Returns the differences of the rounds as shares of the base."""
        pairs = zip(self.runs(name, interval), self.runs(base, interval))
        return [value(a, key) / value(b, key) - 1 for a, b in pairs]


def value(run, key):
    """Returns a figure of a run; CPU time is that of one unit of work."""
    return run[key] / run["work"] if key == "cpu" else run[key]


class Measurement:
    """The options, and what runs of several programs share."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, pathlib.Path(scratch)
        self.journal = Journal(options.keep or self.scratch / "runs.jsonl", fresh=False)
        self.classes = compile_workloads(scratch)

    def program(self, name):
        """Returns what follows `java` and the profiler's options, and the function that drives the program."""
        if name == "web":
            return [*heap([HEAP]), *web.arguments(self.scratch)], self.drive
        if name in PROGRAMS:
            arguments = program_arguments(name, self.options.size, self.scratch)
            return [*heap(arguments), *arguments], None
        return [*heap([HEAP]), "-cp", self.classes, name, str(self.options.seconds)], None

    def drive(self, server, output):
        load = web.load(web.wait_for_port(server, output), self.options.rate, self.options.seconds)
        if load["failed"]:
            fail(f"the web server left {load['failed']} of {load['answered'] + load['failed']} requests unanswered")
        return {"work": load["answered"]}

    def cell(self, jdk, name, rounds, program, drive):
        """Measures one program on one JDK in all rounds."""
        compared = profilers.compared(jdk, self.options.interval, self.options.async_profiler, self.options.without)
        settings = {"jdk": jdk, "program": name, "libraries": profilers.libraries(compared), "seconds": self.options.seconds,
                    "size": self.options.size, "rate": self.options.rate, "intervals": self.options.interval,
                    "without": sorted(self.options.without)}
        cell = Cell(self.options.interval[0])
        for turn in range(rounds):
            results = {}
            for profiler in rotated(compared, turn):
                key = {**settings, "round": turn, "profiler": str(profiler)}
                results[profiler] = self.journal.measure(
                    key, lambda: jvm_run.measure(java(jdk), profiler, program, drive))
                complain(f"JDK {jdk} {name}, round {turn + 1} of {rounds}, {profiler}: {results[profiler]['cpu']:.2f} s")
                warn_of_unaccounted(results[profiler], profiler)
            for profiler in compared:
                cell.add(profiler, results[profiler])
        return cell

    def cells(self):
        """Returns the results by JDK and program."""
        cells = {}
        for jdk in self.options.jdk:
            for name in self.options.program:
                if PROGRAMS.get(name, 0) > profilers.feature(jdk):
                    complain(f"SKIPPED JDK {jdk} {name}: needs JDK {PROGRAMS[name]}")
                    continue
                cells[jdk, name] = self.cell(jdk, name, self.options.rounds, *self.program(name))
            if self.options.starts:
                cells[jdk, "Hello"] = self.cell(jdk, "Hello", self.options.starts, ["-cp", self.classes, "Hello"], None)
        return cells


def heap(arguments):
    """Returns the options that fix the size of the heap at the maximum among the arguments and touch all of it."""
    maximum = next(argument for argument in arguments if argument.startswith("-Xmx"))
    return [maximum, maximum.replace("-Xmx", "-Xms"), "-XX:+AlwaysPreTouch"]


def warn_of_unaccounted(run, profiler):
    """Reports a profiler whose account of its own threads is below what the operating system shows."""
    if run.get("threads_ns", run["seen_ns"]) < 0.95 * run["seen_ns"]:
        complain(f"{profiler} accounts for {run['threads_ns'] / 1e6:.1f} ms of its threads' CPU time; the system shows"
                 f" {run['seen_ns'] / 1e6:.1f} ms")


def median_of(runs, figure, scale, digits=1):
    """Returns the median of a figure of the runs as text; "-" if no run has it."""
    figures = [found for found in (figure(run) for run in runs) if found is not None]
    return f"{median_interval(figures)[0] / scale:,.{digits}f}" if figures else "-"


def per_sample(key, samples="samples"):
    def figure(run):
        ns = run.get(key, run["seen_ns"] if key == "threads_ns" else None)
        return ns / run[samples] if ns is not None and run.get(samples) else None
    return figure


def sample_rows(cells):
    """Yields the rows of CPU time per sample."""
    for (jdk, name), cell in cells.items():
        for (profiler, interval), runs in cell.results.items():
            if profiler == "none" or name == "Hello":
                continue
            walk = " / ".join(median_of(runs, lambda run: run.get(key), 1e3) for key in WALK_COLUMNS)
            share = median_of(runs, lambda run: run.get("share"), 0.01, 2)
            yield (f"| {jdk} | {name} | {profiler} {interval} | {median_of(runs, lambda run: run['samples'], 1, 0)} |"
                   f" {median_of(runs, per_sample('threads_ns'), 1e3)} |"
                   f" {median_of(runs, per_sample('steady_ns', 'steady_samples'), 1e3)} |"
                   f" {median_of(runs, per_sample('in_thread_ns'), 1e3)} | {walk} |"
                   f" {share + ' %' if share != '-' else share} |")


def process_rows(cells):
    """Yields the rows of CPU time and memory of the process."""
    for (jdk, name), cell in cells.items():
        base = cell.runs("none", "")
        if not base or name == "Hello":
            continue
        yield (f"| {jdk} | {name} | none | {median_of(base, lambda run: run['cpu'], 1, 2)} s | |"
               f" {median_of(base, lambda run: run['memory'], 1e6)} MB | |")
        for profiler, interval in cell.results:
            if profiler == "none":
                continue
            rival = ""
            if profiler == "tickwalk" and cell.runs("async-profiler", interval):
                rival = with_interval(cell.relative("cpu", profiler, "async-profiler", interval), percent)
            yield (f"| {jdk} | {name} | {profiler} {interval} |"
                   f" {with_interval(cell.relative('cpu', profiler, 'none', interval), percent)} | {rival} |"
                   f" {with_interval(cell.differences('memory', profiler, 'none', interval), megabytes)} |")


def rival_rows(cells):
    """Yields the rows that compare with async-profiler, where no runs without a profiler are there to compare with."""
    for (jdk, name), cell in cells.items():
        for profiler, interval in cell.results:
            if profiler == "tickwalk" and cell.runs("async-profiler", interval) and not cell.runs("none", ""):
                cpu = cell.relative("cpu", profiler, "async-profiler", interval)
                memory = cell.differences("memory", profiler, "async-profiler", interval)
                yield (f"| {jdk} | {name} | {profiler} {interval} | {with_interval(cpu, percent)} |"
                       f" {with_interval(memory, megabytes)} |")


def start_rows(cells):
    """Yields the rows of the start of a JVM."""
    for (jdk, name), cell in cells.items():
        base = cell.runs("none", "")
        if name != "Hello" or not base:
            continue
        yield (f"| {jdk} | none | {median_of(base, lambda run: run['wall'], 1e-3)} ms |"
               f" {median_of(base, lambda run: run['cpu'], 1e-3)} ms |")
        for profiler, interval in cell.results:
            if profiler != "none":
                columns = [with_interval(cell.differences(key, profiler, "none", interval), milliseconds)
                           for key in ("wall", "cpu")]
                yield f"| {jdk} | {profiler} {interval} | {' | '.join(columns)} |"


def percent(share):
    return f"{share:+.2%}".replace("%", " %")


def megabytes(size):
    return f"{size / 1e6:+.1f} MB"


def milliseconds(seconds):
    return f"{1000 * seconds:+.1f} ms"


def table(text, columns, rows):
    """Returns a paragraph and a table, or nothing if there are no rows."""
    rows = list(rows)
    if not rows:
        return []
    return [text, "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *rows, ""]


def report(cells, options):
    """Returns the lines of the report, and the number of claims that fail."""
    lines = [*table(f"CPU time of a sample, medians of {options.rounds} runs. Threads: all threads of the profiler, over the whole run"
                    " and after its first 5 s; of async-profiler and JFR as /proc shows them. In the profiled thread: Tickwalk's"
                    " handler, which copies, and async-profiler's walk. Share: of the program's CPU time, by the profiler's own"
                    " account (threads, handlers, signals).",
                    ["JDK", "program", "profiler", "samples", "threads, us", "after 5 s, us", "in the profiled thread, us",
                     "walk p50 / p99, us", "share"], sample_rows(cells)),
             *table("The whole process against the same program without a profiler in the same round: median difference and 95 %"
                    " confidence interval of the median.",
                    ["JDK", "program", "profiler", "CPU time", "beyond async-profiler's", "peak memory"], process_rows(cells)),
             *table("The whole process with Tickwalk against the same program with async-profiler in the same round: median"
                    " difference and 95 % confidence interval of the median.",
                    ["JDK", "program", "profiler", "CPU time", "peak memory"], rival_rows(cells)),
             *table(f"Start of a JVM that prints a line, {options.starts} rounds: median difference and its interval.",
                    ["JDK", "profiler", "wall time", "CPU time"], start_rows(cells))]
    failed = 0
    if options.check:
        rows, failed = claims.check(cells)
        lines += table("Claims.", ["JDK", "program", "claim", "limit", "measured", "result"], rows)
    return lines, failed


def checked(options):
    """Fails with one line if an option has a value that cannot be measured."""
    for interval in options.interval:
        profilers.check_interval(interval)
    profilers.check_library(options.async_profiler)
    for name in options.program:
        if name == "web":
            program_folder("tomcat")
            web.require_generator()
        elif name in PROGRAMS:
            program_folder(name)
        elif not (HERE / f"workloads/{name}.java").is_file():
            known = ", ".join([*PROGRAMS, "web", "none"])
            fail(f"--program {name}: expected {known} or a class of java-tests/workloads")
    for jdk in options.jdk:
        java(jdk)


def positive(text):
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return int(number) if number == int(number) else number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append", metavar="NAME", help="a folder of java-tests/.cache/jdk (25)")
    parser.add_argument("--program", action="append", metavar="NAME", help=f"({', '.join(DEFAULT_PROGRAMS)})")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each program (5)")
    parser.add_argument("--seconds", type=positive, default=15, metavar="S", help="length of workloads and of the load (15)")
    parser.add_argument("--rate", type=positive, default=400, metavar="R", help="requests per second of web (400)")
    parser.add_argument("--size", choices=["full", "short"], default="full", help="work of h2, clojure, closure and spark")
    parser.add_argument("--starts", type=int, default=20, metavar="N", help="rounds of the start (20)")
    parser.add_argument("--interval", action="append", metavar="TIME", help="CPU time between samples of a thread (1ms)")
    parser.add_argument("--async-profiler", type=pathlib.Path, metavar="LIBRARY", help="libasyncProfiler.so, 4.0 or newer")
    parser.add_argument("--without", action="append", default=[], choices=profilers.NAMES,
                        help="leave out a profiler; none: the run without one")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FILE", help="file of runs, one JSON object a line")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a claim fails")
    options = parser.parse_args()
    options.jdk = options.jdk or ["25"]
    options.interval = options.interval or (["1ms", "10ms"] if options.check else ["1ms"])
    options.program = [name for name in options.program or DEFAULT_PROGRAMS if name != "none"]
    options.rounds, options.starts = max(options.rounds, 1), max(options.starts, 0)
    checked(options)
    with tempfile.TemporaryDirectory(prefix="tickwalk-cost-") as scratch:
        lines, failed = report(Measurement(options, scratch).cells(), options)
    print("\n".join(lines).rstrip())
    if failed:
        complain(f"{failed} claims fail")
        sys.exit(1)


if __name__ == "__main__":
    main()
