"""The profilers that are compared: how each is loaded into a JVM, and what it reports about itself after the run.

All sample CPU time at the same interval with whole stacks, and write a file when the JVM ends.
"""

import re
import subprocess

from measure import recordings
from measure.harness import binary, fail, identity, java

# Cost of the kernel for one signal, which no handler measures; as in sampler-thread/src/worker/tune.rs.
SIGNAL_NS = 1500
# Deeper than any stack of the programs.
STACK_DEPTH = 1024
# After the start, when classes are loaded and most names are new.
STEADY_NS = 5_000_000_000
JFR_EVENT = "jdk.CPUTimeSample"
# The first release with that event.
JFR_SINCE = 25


NAMES = ["none", "tickwalk", "async-profiler", "jfr"]
INTERVAL = re.compile(r"[1-9]\d*(us|ms|s)")


def check_interval(text):
    """Fails with one line if the text is not an interval that all profilers understand."""
    if not INTERVAL.fullmatch(text):
        fail(f"--interval {text}: expected a number with us, ms or s, such as 1ms")


def check_library(path):
    """Fails with one line if async-profiler is wanted and its library is missing."""
    if path and not path.is_file():
        fail(f"--async-profiler {path}: no such file")


def feature(jdk):
    """Returns the feature release of a JDK's folder, as 25 of 25-sid."""
    return int(re.match(r"\d+", jdk)[0])


def counter_hertz():
    """Returns the frequency of the time stamp counter: the nominal one, which a virtual machine reports unchanged."""
    return float(re.search(r"cpu MHz\s*: ([\d.]+)", open("/proc/cpuinfo").read())[1]) * 1e6


class Nothing:
    """A JVM without a profiler."""

    name, library = "none", None
    # Beginnings of the names of its threads.
    threads = ()

    def __init__(self, interval=""):
        self.interval = interval

    def __str__(self):
        return f"{self.name} {self.interval}".rstrip()

    def options(self, folder):
        """Returns the options of the JVM that load it."""
        return []

    def report(self, folder, output):
        """Returns what is known after the run: number of samples and costs."""
        return {}


class Tickwalk(Nothing):
    name, threads = "tickwalk", ("tickwalk",)

    def __init__(self, interval, *options):
        """`options` are further options of the agent, as NAME=VALUE."""
        super().__init__(interval)
        self.library, self.more = binary("libtickwalk.so"), options

    def options(self, folder):
        own = [f"interval={self.interval}", *self.more, f"file={folder}/out.tickwalk"]
        return [f"-agentpath:{self.library}={','.join(own)}"]

    def report(self, folder, output):
        start, statistics = recordings.statistics(folder / "out.tickwalk")
        if not statistics:
            fail(f"the recording has no statistics: {output[-500:]}")
        last = statistics[-1]
        whole = next(entry for entry in reversed(statistics) if "walk_ns" in entry)
        walk, handler = whole["walk_ns"], whole["handler_cycles"]
        handler_ns = handler.sum() / counter_hertz() * 1e9
        threads_ns, samples, requests = (last[name] for name in ("profiler_cpu_ns", "samples", "requests"))
        report = {
            "samples": samples, "threads_ns": threads_ns, "in_thread_ns": handler_ns,
            "walk_p50_ns": walk.quantile(0.5), "walk_p99_ns": walk.quantile(0.99),
            "handler_p50": handler.quantile(0.5), "handler_p99": handler.quantile(0.99),
            "share": (threads_ns + handler_ns + requests * SIGNAL_NS) / last["process_cpu_ns"],
            "bytes": recordings.sample_bytes(folder / "out.tickwalk"),
        }
        steady = next((entry for entry in statistics if entry["time_ns"] >= start + STEADY_NS), last)
        if last["samples"] > steady["samples"]:
            report["steady_samples"] = last["samples"] - steady["samples"]
            report["steady_ns"] = last["profiler_cpu_ns"] - steady["profiler_cpu_ns"]
        return report


class AsyncProfiler(Nothing):
    """Walks in the signal handler; its own statistics give the mean time of a walk there."""

    name, threads = "async-profiler", ("Async-profiler",)
    STACKS = re.compile(r"Collected (\d+) stacks, avg time = (\d+) ns")

    def __init__(self, interval, library):
        super().__init__(interval)
        self.library = library

    def options(self, folder):
        return [f"-agentpath:{self.library}=start,event=ctimer,interval={self.interval},features=stats,"
                f"jstackdepth={STACK_DEPTH},file={folder}/out.jfr"]

    def report(self, folder, output):
        found = self.STACKS.search(output)
        if not found:
            fail(f"async-profiler reported no stacks: {output[-500:]}")
        samples, walk_ns = map(int, found.groups())
        return {"samples": samples, "in_thread_ns": samples * walk_ns}


class Jfr(Nothing):
    name, threads = "jfr", ("JFR ",)

    def options(self, folder):
        return [f"-XX:FlightRecorderOptions:stackdepth={STACK_DEPTH}", "-Xlog:jfr+startup=off",
                f"-XX:StartFlightRecording:settings=none,+{JFR_EVENT}#enabled=true,"
                f"+{JFR_EVENT}#throttle={self.interval},filename={folder}/jdk.jfr"]

    def report(self, folder, output):
        tool = java(str(JFR_SINCE)).parent / "jfr"
        summary = subprocess.run([tool, "summary", folder / "jdk.jfr"], check=True, capture_output=True, text=True).stdout
        return {"samples": int(re.search(rf"{JFR_EVENT}\s+(\d+)", summary)[1])}


def compared(jdk, intervals, async_profiler=None, without=()):
    """Returns the profilers that can run on a JDK: all at the first interval, Tickwalk at the others as well."""
    first = intervals[0]
    profilers = [Nothing(), Tickwalk(first)]
    if async_profiler:
        profilers.append(AsyncProfiler(first, async_profiler))
    if feature(jdk) >= JFR_SINCE:
        profilers.append(Jfr(first))
    profilers += [Tickwalk(interval) for interval in intervals[1:]]
    return [profiler for profiler in profilers if profiler.name not in without]


def libraries(profilers):
    """Returns the identities of the libraries, for the keys of a journal."""
    return {profiler.name: identity(profiler.library) for profiler in profilers if profiler.library}
