"""Measures what a request pays for a profiler: latency of a web server under a fixed load, in interleaved rounds.

  python3 java-tests/measure latency [--jdk NAME] [--pairs N] [--rate R] [--seconds S] [--warmup S] [--interval TIME]
                     [--async-profiler LIBRARY] [--without PROFILER]... [--keep FILE] [--fresh]

The server is Tomcat with a small shop (java-tests/workloads/programs/web). Each round starts it once without a profiler, with
Tickwalk, with async-profiler if --async-profiler names its library, and on JDK 25 and newer with JFR's CPU-time sampling,
in an order that rotates; a pair is a profiler's run and the run without one in the same round. oha sends requests at a
fixed rate, on a schedule that slow responses do not hold up, and counts latency from the scheduled moment
(java-tests/measure/web.py), so that no wait is hidden (no coordinated omission). The load before --warmup is not measured.

Prints Markdown: p50, p99 and p99.9 of each profiler (medians of the rounds) and the paired differences with their
confidence intervals. Every run is kept in a file (--keep), one JSON object a line; an interrupted measurement continues
with the same command. --fresh deletes that file first.
Prerequisites: java-tests/fetch --web and cargo build --release. The figures need a machine where nothing else runs; server
and load generator share it.
"""

import argparse
import pathlib
import statistics
import tempfile

from measure import jvm_run
from measure import profilers
from measure import web
from measure.harness import HERE, Journal, complain, fail, java, rotated, with_interval

PERCENTILES = ["p50", "p99", "p99.9"]
# Share of the requests that may go unanswered; beyond it the server is overloaded and latency depends on the load's
# length.
MOST_FAILED = 0.001
HEAP = ["-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch"]


def milliseconds(seconds):
    return f"{1000 * seconds:.2f}"


def difference(seconds):
    return f"{1000 * seconds:+.2f}"


def share(ratio):
    return f"{ratio:+.1%}".replace("%", " %")


def measure(options, scratch):
    """Returns the results of all rounds by profiler."""
    compared = profilers.compared(options.jdk, [options.interval], options.async_profiler, options.without)
    settings = {"jdk": options.jdk, "rate": options.rate, "seconds": options.seconds, "warmup": options.warmup,
                "interval": options.interval, "without": sorted(options.without),
                "libraries": profilers.libraries(compared)}
    program = [*HEAP, *web.arguments(scratch)]

    def drive(server, output):
        port = web.wait_for_port(server, output)
        web.load(port, options.rate, options.warmup)
        load = web.load(port, options.rate, options.seconds)
        if load["failed"] > MOST_FAILED * options.rate * options.seconds:
            fail(f"{load['failed']} requests were not answered: the rate of {options.rate:g} is too high for this machine")
        return {"work": load["answered"], **{name: load[name] for name in ("rate", *PERCENTILES)}}

    journal = Journal(options.keep, options.fresh)
    results = {profiler: [] for profiler in compared}
    for turn in range(options.pairs):
        for profiler in rotated(compared, turn):
            run = journal.measure({**settings, "round": turn, "profiler": str(profiler)},
                                  lambda: jvm_run.measure(java(options.jdk), profiler, program, drive))
            results[profiler].append(run)
            shown = ", ".join(f"{name} {milliseconds(run[name])} ms" for name in PERCENTILES)
            complain(f"round {turn + 1} of {options.pairs}, {profiler}: {shown}")
    return results


def report(results, options):
    """Yields the lines of the report."""
    yield (f"Tomcat on JDK {options.jdk}, {options.rate:g} requests a second for {options.seconds:g} s after {options.warmup:g} s,"
           f" {options.pairs} interleaved pairs. Latency in ms: medians of the rounds.")
    yield ""
    yield f"| profiler | {' | '.join(PERCENTILES)} | CPU time a request, us |"
    yield "|---|" + "---|" * len(PERCENTILES) + "---|"
    for profiler, runs in results.items():
        columns = [milliseconds(statistics.median(run[name] for run in runs)) for name in PERCENTILES]
        cpu = statistics.median(run["cpu"] / run["work"] for run in runs)
        yield f"| {profiler} | {' | '.join(columns)} | {1e6 * cpu:.0f} |"
    base = next((runs for profiler, runs in results.items() if profiler.name == "none"), None)
    if base is None:
        return
    yield ""
    yield "Difference to the run without a profiler in the same round: median and 95 % confidence interval of the median, in ms."
    yield ""
    yield f"| profiler | {' | '.join(PERCENTILES)} | CPU time |"
    yield "|---|" + "---|" * len(PERCENTILES) + "---|"
    for profiler, runs in results.items():
        if runs is not base:
            pairs = list(zip(runs, base))
            columns = [with_interval([a[name] - b[name] for a, b in pairs], difference) for name in PERCENTILES]
            cpu = with_interval([a["cpu"] * b["work"] / (b["cpu"] * a["work"]) - 1 for a, b in pairs], share)
            yield f"| {profiler} | {' | '.join(columns)} | {cpu} |"


def positive(text):
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", default="25", metavar="NAME", help="a folder of java-tests/.cache/jdk (25)")
    parser.add_argument("--pairs", type=int, default=20, metavar="N", help="rounds (20)")
    parser.add_argument("--rate", type=positive, default=400, metavar="R", help="requests per second (400)")
    parser.add_argument("--seconds", type=positive, default=10, metavar="S", help="measured load of a run (10)")
    parser.add_argument("--warmup", type=positive, default=5, metavar="S", help="load before it (5)")
    parser.add_argument("--interval", default="10ms", metavar="TIME", help="CPU time between samples of a thread (10ms)")
    parser.add_argument("--async-profiler", type=pathlib.Path, metavar="LIBRARY", help="libasyncProfiler.so, 4.0 or newer")
    parser.add_argument("--without", action="append", default=[], choices=profilers.NAMES, help="leave out a profiler")
    parser.add_argument("--keep", type=pathlib.Path, default=HERE / ".cache/results/latency.jsonl", metavar="FILE",
                        help="file of runs (java-tests/.cache/results/latency.jsonl)")
    parser.add_argument("--fresh", action="store_true", help="delete that file first")
    options = parser.parse_args()
    options.pairs = max(options.pairs, 1)
    profilers.check_interval(options.interval)
    profilers.check_library(options.async_profiler)
    java(options.jdk)
    web.require_generator()
    with tempfile.TemporaryDirectory(prefix="tickwalk-latency-") as scratch:
        results = measure(options, pathlib.Path(scratch))
    print("\n".join(report(results, options)))


if __name__ == "__main__":
    main()
