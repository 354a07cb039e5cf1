"""Records when threads run, wait for a processor and sleep, with the kernel's scheduler events (tracefs).

Events are recorded only of chosen threads and of those that they start, into a buffer of this process, so that others who
trace are not disturbed. Times are those of the monotonic clock, in nanoseconds. Needs root.
Source: Documentation/trace/{ftrace,events}.rst (instances, set_event_pid, event-fork).
"""

import bisect
import collections
import os
import pathlib
import re

TRACEFS = pathlib.Path("/sys/kernel/tracing")
EVENTS = ["sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_process_fork"]
BUFFER_KIB = 16384
LINE = re.compile(r"^\s*(?P<comm>.*?)-(?P<pid>\d+)\s+\[\d+\]\s.*?(?P<seconds>\d+)\.(?P<micros>\d+): (?P<event>\w+): (?P<rest>.*)$")
SWITCH = re.compile(r"prev_comm=.* prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+) next_prio=")
WOKEN = re.compile(r"pid=(\d+) prio=")
FORK = re.compile(r"child_pid=(\d+)")

# Threads that wait for each other, of which the last one is blamed.
LONGEST_CHAIN = 6

RUNNING, READY, ASLEEP = "running", "ready", "asleep"


def why_not():
    """Returns why this process cannot record, or None."""
    if not os.access(TRACEFS / "instances", os.W_OK):
        return f"{TRACEFS}/instances cannot be written: mount tracefs and run as root"
    return None


class Trace:
    """A recording of the events of some threads and their children; a context manager."""

    def __init__(self, tids):
        self.folder = TRACEFS / "instances" / f"tickwalk-{os.getpid()}"
        self.tids = tids

    def _write(self, name, text):
        (self.folder / name).write_text(text)

    def __enter__(self):
        self.folder.mkdir()
        self._write("trace_clock", "mono")
        self._write("buffer_size_kb", str(BUFFER_KIB))
        self._write("options/event-fork", "1")
        self._write("set_event_pid", " ".join(map(str, self.tids)))
        for event in EVENTS:
            self._write(f"events/sched/{event}/enable", "1")
        return self

    def __exit__(self, *_):
        self._write("tracing_on", "0")
        self._write("events/enable", "0")
        self.folder.rmdir()

    def read(self):
        """Ends the recording and returns its threads by kernel id, and the children of each thread by the time of their start.

        Raises ValueError if events are missing.
        """
        self._write("tracing_on", "0")
        for stats in self.folder.glob("per_cpu/cpu*/stats"):
            if lost := int(re.search(r"^overrun: (\d+)", stats.read_text(), re.MULTILINE)[1]):
                raise ValueError(f"{lost} scheduler events did not fit into {BUFFER_KIB} KiB: trace for a shorter time")
        threads, children = collections.defaultdict(Thread), collections.defaultdict(list)
        with open(self.folder / "trace", errors="replace") as lines:
            for line in lines:
                if found := LINE.match(line):
                    record(threads, children, found)
        return threads, children


def record(threads, children, found):
    """Adds one event to the threads that it is about."""
    # The trace shows microseconds.
    at = int(found["seconds"]) * 10**9 + int(found["micros"]) * 1000
    event, rest = found["event"], found["rest"]
    if event == "sched_switch":
        if switch := SWITCH.search(rest):
            gone, state, comm, come = int(switch[1]), switch[2], switch[3], int(switch[4])
            threads[gone].add(at, READY if state.startswith("R") else ASLEEP)
            threads[come].add(at, RUNNING)
            threads[come].comm = comm
    elif event == "sched_process_fork":
        child = int(FORK.search(rest)[1])
        children[int(found["pid"])].append((at, child))
        threads[child].born = at
    else:
        thread = threads[int(WOKEN.search(rest)[1])]
        if event == "sched_waking":
            thread.wakers.append((at, int(found["pid"]), found["comm"].strip()))
        elif thread.state_at(at) == ASLEEP:
            thread.add(at, READY)


class Thread:
    """States of a thread: a list of times and the state that began at each."""

    def __init__(self):
        self.times, self.states, self.wakers = [], [], []
        self.comm, self.born = "", None

    def add(self, at, state):
        self.times.append(at)
        self.states.append(state)

    def state_at(self, at):
        """Returns the state at a time; asleep if it is unknown."""
        index = bisect.bisect_right(self.times, at)
        return self.states[index - 1] if index else ASLEEP

    def waker(self, at):
        """Returns kernel id and name of the thread that ended the sleep of this time."""
        index = bisect.bisect_left(self.wakers, (at,))
        return self.wakers[index][1:] if index < len(self.wakers) else (0, "nobody")

    def changes(self, begin, end):
        """Returns the times between two others at which its state changed."""
        return self.times[bisect.bisect_right(self.times, begin):bisect.bisect_left(self.times, end)]

    def bursts(self, begin, end):
        """Returns (start, CPU time) of each piece of work between two sleeps within a time; waits for a processor do not end it."""
        pieces, started, running, cpu = [], None, None, 0
        for at, state in zip(self.times, self.states):
            if not begin <= at < end:
                continue
            if running is not None:
                cpu, running = cpu + at - running, None
            if state == ASLEEP:
                if started is not None and cpu:
                    pieces.append((started, cpu))
                started, cpu = None, 0
            else:
                started = at if started is None else started
                running = at if state == RUNNING else None
        return pieces


class Start:
    """Parts of the time of one thread's start, in nanoseconds.

    At each moment the new thread decides if it runs or is ready to; while it sleeps, or does not exist, the one that starts
    it does. While both sleep, the thread that ends the sleep is looked at, if it is recorded: it holds what they wait for,
    and may itself wait for a processor.
    """

    def __init__(self, threads, children, parent, begin, end):
        self.begin, self.total = begin, end - begin
        self.waiting, self.running = 0, 0
        # By the name of the thread that ended the sleep: sleep while it waited for a processor, and other sleep.
        self.behind, self.asleep = collections.Counter(), collections.Counter()
        starts = [tid for at, tid in children[parent] if begin - 1000 <= at <= end]
        ours, child = threads[parent], threads[starts[0]] if starts else Thread()
        changes = sorted({begin, end, *ours.changes(begin, end), *child.changes(begin, end)})
        for at, until in zip(changes, changes[1:]):
            first = child.state_at(at)
            state = first if first != ASLEEP else ours.state_at(at)
            if state == READY:
                self.waiting += until - at
            elif state == RUNNING:
                self.running += until - at
            else:
                # Before its first event the child does not exist.
                sleeper = child if child.times and at >= child.times[0] else ours
                self._blame(threads, sleeper, at, until, LONGEST_CHAIN)
        self.rest = self.total - self.waiting - sum(self.behind.values())

    def _blame(self, threads, sleeper, begin, end, links):
        """Counts a part of a sleep by what the thread did that ended the sleep; if it slept too, by who ended that."""
        tid, name = sleeper.waker(begin)
        holder = threads.get(tid, Thread())
        name = holder.comm or name
        moments = [begin, *holder.changes(begin, end), end]
        for at, until in zip(moments, moments[1:]):
            state = holder.state_at(at)
            if state == READY:
                self.behind[name] += until - at
            elif state == ASLEEP and links and holder.times:
                self._blame(threads, holder, at, until, links - 1)
            else:
                self.asleep[name] += until - at

    def __str__(self):
        parts = [f"{self.waiting / 1e6:.1f} ms waiting for a processor", f"{self.running / 1e6:.1f} running"]
        for sleeps, state in ((self.behind, "behind {}, which waited for a processor"), (self.asleep, "asleep until {} woke it")):
            parts += [f"{ns / 1e6:.1f} {state.format(name)}" for name, ns in sleeps.most_common() if ns >= 50_000]
        return ", ".join(parts)
