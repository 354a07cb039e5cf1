"""The project's promises about its cost, as data, and the comparison of a measurement with it.

A metric is computed from the results of all rounds of one program on one JDK; a claim names a metric and its limit.
"""

import statistics

from measure.harness import median_interval

REAL = ["h2", "clojure", "closure"]
ALL = [*REAL, "spark", "web", "RandomRecursion"]
MEGABYTE = 1e6
# With fewer values, the interval of a median is no more than the range of a few runs.
FEWEST_ROUNDS = 5


def medians(value):
    """Makes a metric of a function of one run: its median over the rounds, or None if no run has it."""

    def metric(cell, interval):
        values = [value(run) for run in cell.runs("tickwalk", interval)]
        values = [each for each in values if each is not None]
        return statistics.median(values) if values else None

    return metric


def per_sample_us(ns, samples):
    return lambda run: run[ns] / 1e3 / run[samples] if run.get(samples) else None


def added_memory(cell, interval):
    """Returns the median difference of the peak resident memory, in MB."""
    differences = cell.differences("memory", "tickwalk", "none", interval)
    return statistics.median(differences) / MEGABYTE if differences else None


def added_wall(cell, interval):
    """Returns the median difference of the wall time, in milliseconds."""
    differences = cell.differences("wall", "tickwalk", "none", interval)
    return 1e3 * statistics.median(differences) if differences else None


def least_beyond_rival(cell, interval):
    """Returns the low end of the interval of our process CPU time beyond async-profiler's, in percent.

    Above zero, ours is higher and the difference is not noise. Fewer rounds than FEWEST_ROUNDS decide nothing.
    """
    differences = cell.relative("cpu", "tickwalk", "async-profiler", interval)
    return 100 * median_interval(differences)[1] if len(differences) >= FEWEST_ROUNDS else None


SAMPLE = medians(per_sample_us("threads_ns", "samples"))
STEADY = medians(per_sample_us("steady_ns", "steady_samples"))
SHARE = medians(lambda run: 100 * run["share"])
HANDLER = medians(lambda run: run["handler_p50"])
BYTES = medians(lambda run: run["bytes"] / run["samples"] if run["samples"] else None)

# Text, unit, programs, interval, metric, largest value that keeps the promise.
CLAIMS = [
    ("all profiler threads, per sample", "us", REAL, "1ms", SAMPLE, 10),
    ("all profiler threads after 5 s, per sample", "us", REAL, "1ms", STEADY, 5),
    ("all profiler threads, per sample", "us", ["spark"], "1ms", SAMPLE, 25),
    ("all profiler threads, per sample", "us", ["RandomRecursion"], "1ms", SAMPLE, 20),
    ("profiler's account, of the program's CPU time", "%", [*REAL, "spark", "web"], "10ms", SHARE, 0.2),
    ("profiler's account, of the program's CPU time", "%", ["RandomRecursion"], "10ms", SHARE, 0.25),
    ("process CPU beyond async-profiler's, low end of the interval", "%", ALL, "1ms", least_beyond_rival, 0),
    ("handler, median", "cycles", ["h2"], "1ms", HANDLER, 5000),
    ("batches of samples, per sample", "bytes", ALL, "1ms", BYTES, 20),
    ("peak resident memory", "MB", ["FourThreads"], "1ms", added_memory, 6),
    ("peak resident memory", "MB", ["h2"], "1ms", added_memory, 10),
    ("peak resident memory", "MB", ["spark"], "1ms", added_memory, 15),
    ("start, wall time", "ms", ["Hello"], "1ms", added_wall, 3),
]


def check(cells):
    """Returns the rows of the table of claims, and the number of claims that fail.

    `cells` are the results by JDK and program. A claim that cannot be computed is shown as not measured.
    """
    rows, failed = [], 0
    jdks = sorted({jdk for jdk, _ in cells})
    for text, unit, programs, interval, metric, limit in CLAIMS:
        for program in programs:
            for jdk in jdks:
                cell = cells.get((jdk, program))
                value = metric(cell, interval) if cell else None
                kept = value is None or value <= limit
                failed += not kept
                found = "not measured" if value is None else f"{value:.2f} {unit} | {'kept' if kept else '**failed**'}"
                if cell:
                    rows.append(f"| {jdk} | {program} | {text}, {interval} | {limit:g} {unit} |"
                                f" {found if value is not None else 'not measured | -'} |")
    return rows, failed
