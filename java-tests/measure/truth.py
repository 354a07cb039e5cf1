"""Runs programs with known answers under Tickwalk, async-profiler and JFR, and compares what each shows with the truth.

  python3 java-tests/measure truth [--jdk NAME]... [--case NAME]... [--seconds S] [--repeats N]
                   [--async-profiler LIBRARY] [--without PROFILER]... [--list] [--check] [--page FILE]

Cases:
  chains     methods in the ratio 1:2:4:8, inlined and not
  lines      two loops of one method in the ratio 1:3, by line, in each export that has lines
  phases     methods in phase with the sampling interval
  tick       methods in phase with the kernel's tick, which timers of the kernel cannot show; not judged
  perf       methods of 2.5, 1 and 0.25 ms in turn at an interval of 1 ms with clock=perf, Tickwalk only: within 2 points
  stall      a cheap method behind a load that waits for memory
  short      threads of 42 to 336 us
  causality  a method called more and more: what the profile adds against what the process adds
  repeats    the same program again and again: the spread of a method's share against that of independent samples
  kinds      system calls, page faults, garbage collector and compiler against the kernel's clocks

Prints Markdown: for each case the truth and what each profiler shows, then one line for each statement: its limit, what was
measured, and the result. --check exits with 1 if a statement fails for Tickwalk. --page writes a page instead, with the
machine and the command.
--seconds is the CPU time of a program, twice as long in `lines`, three times in `short` and four times in `phases`, where the
default has to be enough for a limit of 2 points; --repeats the number of runs of `repeats`, and twice
the number of rounds of `causality`.
JFR takes part on JDK 25 and newer, async-profiler if --async-profiler names its library.
Prerequisites: java-tests/fetch and cargo build --release. Load on the machine changes nothing but the time it takes, except
in causality and stall, which compare CPU times of runs.
"""

import argparse
import datetime
import math
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

from measure import machine
from measure.harness import complain, compile_workloads, fail, java
from measure.profilers import NAMES, check_library
from measure.shown import Tickwalk
from measure.truth_runs import Runner

# Largest error of a share, in points, if that of independent samples is smaller.
POINTS = 2.0
# Standard errors of independent samples that a share may be off, if that is more.
DEVIATIONS = 3.0
# The weights of samples differ, because their distances do: factor of the standard error (design/timers.md).
UNEQUAL_WEIGHTS = 1.06
TICK_NS = machine.tick_ns()
# CPU time of a program, and number of repeated runs.
DEFAULT_SECONDS, DEFAULT_REPEATS = 15.0, 30
# How many times as long two cases run, so that by default POINTS is more than DEVIATIONS: 7,500 and 6,000 samples.
LINES_LONGER, PHASES_LONGER = 2, 4
# The same for short threads, a thousand of each length for a second: 7,000 samples.
SHORT_LONGER = 3


class Report:
    """Tables of what was shown, and the statements with their results."""

    def __init__(self):
        self.statements, self.lines = [], []

    def table(self, title, header, rows):
        lines = ["", title, "", *(f"| {' | '.join(row)} |" for row in [header, *rows])]
        lines.insert(4, f"|{'---|' * len(header)}")
        print("\n".join(lines), flush=True)
        self.lines += lines

    def statement(self, jdk, profiler, text, limit, measured, kept):
        self.statements.append((jdk, profiler, text, limit, measured, kept))

    def finish(self):
        """Prints all statements; returns whether all hold for Tickwalk."""
        rows = [(jdk, profiler, text, limit, measured, "kept" if kept else "**failed**")
                for jdk, profiler, text, limit, measured, kept in self.statements]
        self.table("All statements.", ["JDK", "profiler", "statement", "limit", "measured", "result"], rows)
        return all(kept for _, profiler, *_, kept in self.statements if profiler.startswith("tickwalk"))


def percent(share):
    return f"{100 * share:.1f} %"


def tolerance(share, samples):
    """Returns the error of a share that is allowed, in points."""
    error = UNEQUAL_WEIGHTS * math.sqrt(share * (1 - share) / max(1, samples))
    return max(POINTS, 100 * DEVIATIONS * error)


def shares(profile, methods):
    """Returns the share of each method in the time of all of them."""
    times = {method: profile.under(method) for method in methods}
    total = sum(times.values())
    return {method: time / total if total else 0.0 for method, time in times.items()}, total


def slope_of(points):
    """Returns slope and standard error of the third of each point on the second, with the first as the instrument."""
    reach = sum(level * cpu for level, cpu, _ in points)
    slope = sum(level * added for level, _, added in points) / reach
    rest = sum((level * (added - slope * cpu)) ** 2 for level, cpu, added in points)
    return slope, math.sqrt(rest) / reach


def samples_of(total_ns, interval_ns, tick_ns=TICK_NS):
    return total_ns / max(interval_ns, tick_ns)


class Truth:
    """The cases."""

    def __init__(self, options, runner, report):
        self.options, self.runner, self.report = options, runner, report

    def compare(self, jdk, title, results, interval_ns, expected=None, judged=True, tick_ns=TICK_NS):
        """Prints the shares that each profiler shows, and states how far they are off.

        `results` has a profile and the truth for each profiler; `expected` gives instead the range of each share. Samples come
        every `interval_ns` or every `tick_ns`, whichever is longer.
        """
        methods = list(next(iter(results.values()))[1])
        columns, found = [], {}
        for name, (profile, truth) in results.items():
            share, total = shares(profile, methods)
            columns.append(name)
            found[name] = share
            if not total and name.startswith("tickwalk"):
                fail(f"JDK {jdk}, {title}: {name} shows none of {', '.join(methods)}")
            burnt = sum(truth.values())
            samples = samples_of(burnt, interval_ns, tick_ns)

            def beyond(method):
                low, high = expected or (truth[method] / burnt,) * 2
                return 100 * max(low - share[method], share[method] - high, 0.0)

            worst = max(methods, key=beyond)
            limit = max(tolerance(truth[method] / burnt, samples) for method in methods)
            measured = f"{beyond(worst):.1f} ({worst})" if total else "shows none of the methods"
            if judged:
                self.report.statement(jdk, name, f"{title}: error of a share, points", f"{limit:.1f}", measured,
                                      bool(total) and beyond(worst) <= limit)
        truth = next(iter(results.values()))[1]
        rows = [[method, percent(truth[method] / sum(truth.values())), *(percent(found[name][method]) for name in columns)]
                for method in methods]
        self.report.table(f"JDK {jdk}, {title}: share of the methods' time.", ["method", "truth", *columns], rows)

    def profiled(self, jdk, workload, arguments, methods, options=(), interval="1ms", **how):
        """Runs a workload under each profiler; returns profile and truth of each."""
        results = {}
        for profiler in self.runner.profilers(jdk, interval, how.get("with_lines", False)):
            run = self.runner.run(jdk, profiler, [*options, workload, *map(str, arguments)], **how)
            results[profiler.name] = run.profile, {method: run.truth[method] for method in methods}
            for name, profile in run.elsewhere.items():
                results[f"{profiler.name}, {name}"] = profile, results[profiler.name][1]
        return results

    def chains(self, jdk):
        methods = [f"Chains.{name}" for name in ["one", "two", "four", "eight"]]
        for title, options in [("chains, inlined", []),
                               ("chains, not inlined", ["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Chains.*"])]:
            results = self.profiled(jdk, "Chains", [self.options.seconds], methods, options)
            self.compare(jdk, title, results, TICK_NS)

    def lines(self, jdk):
        methods = ["TwoLines.loops:14", "TwoLines.loops:15"]
        results = self.profiled(jdk, "TwoLines", [LINES_LONGER * self.options.seconds], methods, with_lines=True)
        self.compare(jdk, "lines", results, TICK_NS)

    def phases(self, jdk, interval_ms=10, title="phases of the interval", judged=True):
        methods = [f"FourPhases.{name}" for name in ["first", "second", "third", "fourth"]]
        turn_ns = interval_ms * 1_000_000 // len(methods)
        seconds = PHASES_LONGER * self.options.seconds if judged else self.options.seconds
        results = self.profiled(jdk, "FourPhases", [seconds, turn_ns], methods, interval="10ms")
        # A tick meets five places of ten milliseconds in turn, and a quarter of them holds one or two of these.
        self.compare(jdk, title, results, 10_000_000, (0.2, 0.4), judged)

    def tick(self, jdk):
        self.phases(jdk, 4, "phases of the kernel's tick", judged=False)

    def perf(self, jdk):
        methods = [f"FourPhases.{name}" for name in ["first", "second", "third", "fourth"]]
        for turn_ms in [2.5, 1, 0.25]:
            run = self.runner.run(jdk, Tickwalk("1ms", "clock=perf"),
                                  ["FourPhases", str(self.options.seconds), str(round(turn_ms * 1_000_000))])
            truth = {method: run.truth[method] for method in methods}
            # Perf events do not wait for the tick.
            self.compare(jdk, f"clock=perf, turns of {turn_ms:g} ms", {"tickwalk": (run.profile, truth)}, 1_000_000, tick_ns=0)

    def stall(self, jdk):
        rows = []
        for profiler in self.runner.profilers(jdk, "1ms"):
            run = self.runner.run(jdk, profiler, ["-Xbatch", "PointerChase", str(self.options.seconds)])
            loop, cheap = run.profile.under("PointerChase.chase"), run.profile.under("PointerChase.cheap")
            share = cheap / loop if loop else 1.0
            rows.append([profiler.name, percent(share)])
            self.report.statement(jdk, profiler.name, "stall: share of the cheap method", "3 %", percent(share), share <= 0.03)
        self.report.table(f"JDK {jdk}, stall: share of the method behind the load in the loop; the truth is below 1 %.",
                          ["profiler", "share"], rows)

    def short(self, jdk):
        methods = [f"TinyThreads.burn{length}" for length in [42, 84, 168, 336]]
        threads = max(1_000, round(1_000 * SHORT_LONGER * self.options.seconds))
        results = self.profiled(jdk, "TinyThreads", [0, threads], methods)
        self.compare(jdk, "short threads", results, TICK_NS)

    def causality(self, jdk):
        """Runs the program with 0, 25, 50 and 100 % of the extra method, in rounds.

        The slope is that of an instrumental variable: both changes are weighed by the exact length of the extra method.
        Weighed by the change of the CPU time, as least squares does, noise of this time would make every slope too small.
        The CPU time of the profiler's own threads belongs to the process but to no method, so it is taken off.
        A run has some 800 samples: one round errs by 2 to 3 %, so fewer than some ten cannot hold a limit of 3 %.
        """
        levels, rounds = [0, 25, 50, 100], round(3_000 * self.options.seconds)
        others = [f"Causality.{name}" for name in ["first", "third"]]
        rows = []
        for profiler in self.runner.profilers(jdk, "1ms"):
            points, moved = [], {method: [] for method in others}
            for turn in range(max(2, self.options.repeats // 2)):
                order = levels if turn % 2 == 0 else levels[::-1]
                runs = {level: self.runner.run(jdk, profiler, ["Causality", str(rounds), str(level)]) for level in order}
                none = runs[0]
                for level in levels[1:]:
                    run = runs[level]
                    added = run.profile.under("Causality.extra") - none.profile.under("Causality.extra")
                    cpu_ns = [of.cpu_ns - of.profile.profiler_ns for of in (run, none)]
                    points.append((level, cpu_ns[0] - cpu_ns[1], added))
                    for method in others:
                        moved[method].append(run.profile.under(method) / none.profile.under(method) - 1)
                complain(f"JDK {jdk}, causality, {profiler.name}: round {turn + 1}")
            slope, error = slope_of(points)
            rows.append([profiler.name, f"{slope:.3f} ± {error:.3f}",
                         *(percent(statistics.mean(moved[method])) for method in others)])
            self.report.statement(jdk, profiler.name, "causality: slope of the profile on the CPU time of the process",
                                  "0.97 to 1.03", f"{slope:.3f} ± {error:.3f}", 0.97 <= slope <= 1.03)
            for method in others:
                values = moved[method]
                error = statistics.stdev(values) / math.sqrt(len(values))
                change = statistics.mean(values)
                self.report.statement(jdk, profiler.name, f"causality: change of {method}, standard errors", "3.0",
                                      f"{abs(change) / error:.1f} ({percent(change)})", abs(change) <= 3 * error)
        self.report.table(f"JDK {jdk}, causality: slope for the extra method (truth 1), and change of the others (truth 0).",
                          ["profiler", "slope", *others], rows)

    def repeats(self, jdk):
        rows = []
        for profiler in self.runner.profilers(jdk, "10ms"):
            found, expected = [], []
            for _ in range(self.options.repeats):
                # Spans far below the interval, so that every sample is an independent draw.
                run = self.runner.run(jdk, profiler, ["TwoMethods", str(self.options.seconds / 4), "50"])
                share, total = shares(run.profile, ["TwoMethods.heavy", "TwoMethods.light"])
                found.append(share["TwoMethods.light"])
                expected.append(math.sqrt(0.25 * 0.75 / max(1.0, samples_of(total, 10_000_000))))
            spread, independent = 100 * statistics.stdev(found), 100 * UNEQUAL_WEIGHTS * statistics.mean(expected)
            rows.append([profiler.name, percent(statistics.mean(found)), f"{spread:.2f}", f"{independent:.2f}"])
            self.report.statement(jdk, profiler.name, "repeats: spread of a share, points", f"{independent + 1:.2f}",
                                  f"{spread:.2f}", spread <= independent + 1)
        self.report.table(
            f"JDK {jdk}, {self.options.repeats} repeats: share of the method with 25 %, its standard deviation over the runs, and "
            "that of independent samples, in points.", ["profiler", "mean", "spread", "independent"], rows)

    def kinds(self, jdk):
        methods = [f"Kinds.{name}" for name in ["compute", "system", "faults", "allocate"]]
        options = ["-Xmx256m", "-XX:+UseParallelGC", "-XX:-UseDynamicNumberOfCompilerThreads"]
        results, rows = {}, []
        for profiler in self.runner.profilers(jdk, "1ms"):
            run = self.runner.run(jdk, profiler, [*options, "Kinds", str(self.options.seconds)], reads_clocks=True)
            results[profiler.name] = run.profile, {method: run.truth[method] for method in methods}
            cells = [profiler.name]
            for group, names in GROUPS.items():
                truth, seen = run.clocks(names), run.profile.of_threads(lambda thread, names=names: thread.startswith(names))
                error, limit = 100 * abs(seen - truth) / run.cpu_ns, tolerance(truth / run.cpu_ns, samples_of(run.cpu_ns, TICK_NS))
                cells.append(f"{seen / 1e9:.2f} of {truth / 1e9:.2f} s")
                # JFR does not sample threads of the VM.
                if profiler.name != "jfr":
                    self.report.statement(jdk, profiler.name, f"kinds: error of {group}, points of the process", f"{limit:.1f}",
                                          f"{error:.1f}", error <= limit)
            share = run.profile.total() / run.cpu_ns
            self.report.statement(jdk, profiler.name, "kinds: CPU time of the process that samples show", "97 to 101 %",
                                  percent(share), 0.97 <= share <= 1.01)
            rows.append([*cells, percent(share)])
        self.compare(jdk, "kinds of work", results, TICK_NS)
        self.report.table(f"JDK {jdk}, kinds of threads: CPU time shown, and by the kernel's clocks.",
                          ["profiler", *GROUPS, "of the process"], rows)


# Beginnings of the names of threads.
GROUPS = {
    "garbage collector": ("GC Thread", "ParGC Thread", "G1 "),
    "compilers": ("C1 Compiler", "C2 Compiler"),
}
CASES = ["chains", "lines", "phases", "tick", "perf", "stall", "short", "causality", "repeats", "kinds"]


def page(options, report, date, load):
    """Returns the text of a page with the results."""
    shown = [f"--{name}={value}" for name in ["jdk", "case", "without"] for value in getattr(options, name) or []]
    shown += [f"--seconds={options.seconds:g}"] * (options.seconds != DEFAULT_SECONDS)
    shown += [f"--repeats={options.repeats}"] * (options.repeats != DEFAULT_REPEATS)
    shown += ["--async-profiler", "LIBRARY"] if options.async_profiler else []
    head = [
        "# Truth: programs with known answers", "",
        "`java-tests/measure/truth.py` writes this page; its help describes the cases, and `design/measured/benchmarks.md` how they are judged.", "",
        "```sh", shlex.join(["java-tests/measure/truth.py", *shown, "--page", "design/measured/truth.md"]), "```", "",
        *machine.lines(),
        f"- date: {date:%Y-%m-%d %H:%M} UTC; load average at the start: {load:.1f}",
    ]
    return "\n".join([*head, *report.lines]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append", metavar="NAME")
    parser.add_argument("--case", action="append", choices=CASES, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS)
    parser.add_argument("--repeats", type=int, default=DEFAULT_REPEATS)
    parser.add_argument("--async-profiler", type=pathlib.Path, metavar="LIBRARY")
    parser.add_argument("--without", action="append", default=[], choices=NAMES, metavar="PROFILER")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return
    if options.seconds <= 0 or options.repeats < 2:
        fail("--seconds must be above 0 and --repeats at least 2")
    check_library(options.async_profiler)
    jdks = options.jdk or ["25"]
    for jdk in jdks:
        java(jdk)
    report, date, load = Report(), datetime.datetime.now(datetime.timezone.utc), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tickwalk-truth-") as scratch:
        runner = Runner(compile_workloads(scratch), options)
        truth = Truth(options, runner, report)
        for jdk in jdks:
            for case in options.case or CASES:
                complain(f"JDK {jdk}, {case}")
                getattr(truth, case)(jdk)
    held = report.finish()
    if options.page:
        options.page.write_text(page(options, report, date, load))
    if options.check and not held:
        fail("a statement fails for Tickwalk")


if __name__ == "__main__":
    main()
