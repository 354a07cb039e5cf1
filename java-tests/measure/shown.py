"""Reads what a profiler shows of a run: CPU time by thread and stack, in the same form for Tickwalk, async-profiler and JFR."""

import json
import re
import subprocess

from measure import profilers
from measure.harness import binary, fail, java

# async-profiler's threads in collapsed stacks, as [name tid=123].
THREAD = re.compile(r"\[(.*?)(?: tid=\d+)?\]$")
# Suffix of the kind of a frame in async-profiler's collapsed stacks.
KIND = re.compile(r"_\[[a-z0-9]\]$")
JFR_PERIOD = re.compile(r"PT([\d.]+)S")


class Profile:
    """CPU time by thread and stack; frames are from the root on, `Class.method` or `Class.method:LINE`."""

    def __init__(self):
        self.stacks = []
        # CPU time of threads of the profiler itself, which no stack shows; 0 if the profiler does not state it.
        self.profiler_ns = 0

    def add(self, thread, frames, ns):
        self.stacks.append((thread, frames, ns))

    def total(self):
        return sum(ns for _, _, ns in self.stacks)

    def under(self, method):
        """Returns the CPU time of stacks that hold a method, or one of its lines if it is named with a line."""
        wanted = (lambda frame: frame == method) if ":" in method else \
            (lambda frame: frame == method or frame.startswith(f"{method}:"))
        return sum(ns for _, frames, ns in self.stacks if any(map(wanted, frames)))

    def of_threads(self, is_wanted):
        return sum(ns for thread, _, ns in self.stacks if is_wanted(thread))


def of_collapsed(text):
    """Reads collapsed stacks that begin with the thread and count nanoseconds."""
    profile = Profile()
    for line in text.splitlines():
        stack, _, ns = line.rpartition(" ")
        thread, *frames = stack.split(";")
        named = THREAD.match(thread)
        profile.add(named[1] if named else thread, [KIND.sub("", frame) for frame in frames], int(ns))
    return profile


def frame_of(entry):
    """Returns the name of a frame of `jfr print --json`, with its line."""
    method = entry["method"]
    owner = (method.get("type") or {}).get("name", "")
    return f"{owner}.{method['name']}:{entry.get('lineNumber', -1)}"


def of_jfr(file, jdk, event, period_ns):
    """Reads the events of a JFR file; `period_ns` is the weight of an event that states none."""
    command = [java(jdk).parent / "jfr", "print", "--json", "--stack-depth", "1024", "--events", event, file]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    profile = Profile()
    for entry in json.loads(text)["recording"]["events"]:
        values = entry["values"]
        thread = values.get("eventThread") or values.get("sampledThread") or {}
        frames = (values.get("stackTrace") or {}).get("frames", [])
        period = JFR_PERIOD.match(str(values.get("samplingPeriod", "")))
        ns = round(float(period[1]) * 1e9) if period else period_ns
        profile.add(thread.get("javaName") or thread.get("osName") or "", [frame_of(frame) for frame in frames][::-1], ns)
    return profile


class Tickwalk(profilers.Tickwalk):
    """Tickwalk at an interval, read through `tickwalk export`."""

    def shown(self, folder, jdk):
        profile = of_collapsed(self.exported(folder, "collapsed", "--unit", "ns", "--threads", "--lines"))
        command = [binary("tickwalk"), "top", "--json", folder / "out.tickwalk"]
        account = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["cpu_ns"]
        profile.profiler_ns = account["profiler"]
        return profile

    def exported(self, folder, form, *options):
        command = [binary("tickwalk"), "export", folder / "out.tickwalk", "--format", form, *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def shown_elsewhere(self, folder, jdk):
        """Returns the same profile by each export with lines that a tool of others or a plain reader can read."""
        file = folder / "out.jfr"
        subprocess.run([binary("tickwalk"), "export", "--cpu-time-samples", folder / "out.tickwalk", "-o", file], check=True)
        return {
            "JFR export": of_jfr(file, jdk, "jdk.CPUTimeSample", 0),
            "speedscope export": of_speedscope(self.exported(folder, "speedscope", "--lines")),
        }


def of_speedscope(text):
    """Reads speedscope's format with sampled profiles."""
    document, profile = json.loads(text), Profile()
    frames = [f"{frame['name']}:{frame['line']}" if "line" in frame else frame["name"] for frame in document["shared"]["frames"]]
    for thread in document["profiles"]:
        for stack, ns in zip(thread["samples"], thread["weights"]):
            profile.add(thread["name"], [frames[index] for index in stack], ns)
    return profile


class AsyncProfiler(profilers.AsyncProfiler):
    """async-profiler at an interval; `with_lines` makes it write JFR, whose events have lines but no weights."""

    def __init__(self, interval, library, with_lines):
        super().__init__(interval, library)
        self.with_lines = with_lines

    def options(self, folder):
        form = "file=%s/out.jfr" % folder if self.with_lines else f"total,threads,file={folder}/out.collapsed"
        return [f"-agentpath:{self.library}=start,event=ctimer,interval={self.interval},"
                f"jstackdepth={profilers.STACK_DEPTH},{form}"]

    def shown(self, folder, jdk):
        if self.with_lines:
            return of_jfr(folder / "out.jfr", jdk, "jdk.ExecutionSample", 1)
        return of_collapsed((folder / "out.collapsed").read_text())


class Jfr(profilers.Jfr):
    """JDK 25's CPU-time sampler."""

    def shown(self, folder, jdk):
        return of_jfr(folder / "jdk.jfr", jdk, profilers.JFR_EVENT, 0)


def compared(jdk, interval, async_profiler, with_lines, without):
    """Returns the profilers that can run on a JDK."""
    found = [Tickwalk(interval)]
    if async_profiler:
        found.append(AsyncProfiler(interval, async_profiler, with_lines))
    if profilers.feature(jdk) >= profilers.JFR_SINCE:
        found.append(Jfr(interval))
    found = [profiler for profiler in found if profiler.name not in without]
    if not found:
        fail("every profiler is left out")
    return found
