"""One JVM under churn and collections for hours, profiled at 1 ms, beside the same program without the agent.

Both are looked at every minute: resident memory, address space, mappings, descriptors, POSIX timers, threads. Each look is a
line of DIR/long.jsonl. The JVMs go on when the script is interrupted; the same command then continues to watch them.
At the end the account of the recording is checked, and memory must be flat: between the third and the last quarter of the
time, the median of each number may grow by no more than the sibling's and a tolerance.
"""

import json
import pathlib
import statistics
import subprocess
import time

from measure import account
from measure.harness import binary, compile_workloads, complain, fail, identity, java

MIB = 1 << 20
# What is watched, and by how much it may vary. Arenas of the C library are address space of 64 MiB, one mapping or two
# each; a thread that is starting or ending when it is looked at has a mapping, a timer and perhaps a descriptor.
TOLERANCE = {"resident": 16 * MIB, "address_space": 256 * MIB, "mappings": 24, "descriptors": 3, "timers": 4, "threads": 4}
LOOK_SECONDS = 60
# Seconds that the JVMs have for their end.
END_SECONDS = 300
HEAP = ["-Xms256m", "-Xmx256m", "-XX:MaxMetaspaceSize=256m"]
# Runs a command, and keeps its process id and exit code in files.
KEPT = '"$@" & echo $! >"$0/pid.part"; mv "$0/pid.part" "$0/pid"; wait $!; echo $? >"$0/exit"'


class Jvm:
    """A JVM that outlives this script; its state is in files of a folder."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, command):
        self.folder.mkdir(parents=True)
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            subprocess.Popen(["sh", "-c", KEPT, str(self.folder), *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                             stderr=err, start_new_session=True)

    def exit_code(self):
        """Returns the exit code, or None while the JVM runs."""
        file = self.folder / "exit"
        return int(file.read_text()) if file.exists() and file.read_text().strip() else None

    def look(self):
        """Returns the numbers of this moment, or None if the JVM has ended."""
        try:
            return look((self.folder / "pid").read_text().strip())
        except (OSError, KeyError):
            return None


def look(pid):
    """Returns what a process holds."""
    proc = pathlib.Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return {
        "resident": int(status["VmRSS"].split()[0]) * 1024, "address_space": int(status["VmSize"].split()[0]) * 1024,
        "mappings": len((proc / "maps").read_text().splitlines()), "descriptors": len(list((proc / "fd").iterdir())),
        "timers": (proc / "timers").read_text().count("ID:"), "threads": int(status["Threads"]),
    }


def grown(rows, side, name):
    """Returns the medians of the third and of the last quarter."""
    values = [row[side][name] for row in rows]
    half, quarter = len(values) // 2, len(values) // 4
    return statistics.median(values[half:-quarter]), statistics.median(values[-quarter:])


def report(rows):
    """Yields the lines of the table and, last, the list of what grew."""
    growing = []
    yield "| | start | third quarter | last quarter | without the agent | tolerance |"
    yield "|---|---|---|---|---|---|"
    for name, tolerance in TOLERANCE.items():
        scale, unit = (MIB, " MiB") if tolerance >= MIB else (1, "")
        before, after = grown(rows, "profiled", name)
        sibling = grown(rows, "plain", name)
        text = [f"{value / scale:.0f}{unit}" for value in (rows[0]["profiled"][name], before, after)]
        yield (f"| {name.replace('_', ' ')} | {' | '.join(text)} | {sibling[0] / scale:.0f} -> {sibling[1] / scale:.0f}{unit} |"
               f" {tolerance / scale:.0f}{unit} |")
        if after - before > max(sibling[1] - sibling[0], 0) + tolerance:
            growing.append(f"{name.replace('_', ' ')} grows: {text[1]} -> {text[2]}")
    yield growing


def check(folder, rows, jvms):
    """Yields what is wrong after the end."""
    for name, jvm in jvms.items():
        if jvm.exit_code() != 0:
            yield f"the {name} JVM ended with {jvm.exit_code()}: {(jvm.folder / 'stderr').read_text()[-500:]}"
    for line in (jvms["profiled"].folder / "stderr").read_text().splitlines():
        if line.startswith("tickwalk: "):
            yield f"the agent complains: {line}"
    try:
        summary = account.of_recording(binary("tickwalk"), folder / "recording.tickwalk")
    except (OSError, ValueError) as error:
        yield f"no summary: {error}"
        return
    cpu = summary["cpu_ns"]
    lost = sum(ns for cause, ns in cpu["lost"].items() if cause != "stopping")
    print(f"\n{summary['samples']} samples of {len(summary['threads'])} threads, {lost / max(cpu['kernel'], 1):.3%} lost "
          f"({cpu['lost']}), {summary['explained']:.2%} of the CPU time explained; queues {summary['queue']['capacity_bytes']} "
          f"and pool {summary['queue']['pool_bytes']} bytes at the end\n")
    yield from account.complaints(summary)


def run(options, known_flags):
    jdk, flags = (options.jdk or ["25"])[0], (options.flags or ["G1"])[0]
    folder, agent = options.folder / "long", binary("libtickwalk.so")
    end_file, log, settings = folder / "end", folder / "long.jsonl", folder / "settings.json"
    wanted = {"jdk": jdk, "flags": flags, "hours": options.hours, "agent": identity(agent)}
    jvms = {"profiled": Jvm(folder / "profiled"), "plain": Jvm(folder / "plain")}
    if settings.exists():
        if json.loads(settings.read_text()) != wanted:
            fail(f"{folder} holds a run with other settings; remove it or give another --folder")
        complain(f"continues the run in {folder}")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        classes = compile_workloads(folder)
        load = [f"-agentpath:{agent}=interval=1ms,file={folder}/recording.tickwalk"]
        for name, jvm in jvms.items():
            jvm.start([java(jdk), *(load if name == "profiled" else []), *HEAP, *known_flags[flags][2], "-cp", classes, "Churn",
                       end_file])
        settings.write_text(json.dumps(wanted))
    begin = settings.stat().st_mtime
    while time.time() < begin + 3600 * options.hours and all(jvm.exit_code() is None for jvm in jvms.values()):
        time.sleep(min(LOOK_SECONDS, 3600 * options.hours / 40))
        looks = {name: jvm.look() for name, jvm in jvms.items()}
        if all(looks.values()):
            with log.open("a") as file:
                file.write(json.dumps({"time": time.time(), **looks}) + "\n")
    end_file.touch()
    deadline = time.time() + END_SECONDS
    while time.time() < deadline and any(jvm.exit_code() is None for jvm in jvms.values()):
        time.sleep(1)
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if len(rows) < 8:
        fail(f"only {len(rows)} looks in {log}: {(folder / 'profiled/stderr').read_text()[-500:]}")
    *lines, wrong = report(rows)
    print(f"JDK {jdk}, {flags}, {(rows[-1]['time'] - begin) / 3600:.2f} of {options.hours} hours, {len(rows)} looks\n")
    print("\n".join(lines))
    wrong += check(folder, rows, jvms)
    if rows[-1]["time"] < begin + 3600 * options.hours * 0.95:
        wrong.append("the run ended early")
    for text in wrong:
        print(f"- {text}")
    if wrong:
        fail("the long run failed")
