"""The tools that a JVM may use beside this profiler: how each is loaded, and how much it got done.

`count` is what the tool delivered; `per` names what it is proportional to: the CPU time or the wall time of the JVM.
"""

import contextlib
import re
import socket
import struct
import subprocess
import threading
import time
import zipfile

from measure.harness import java
from measure.profilers import feature

# Between two samples of the neighbour; a multiple of the scheduler's tick, so that both timers expire together.
INTERVAL_MS = 4
# Seconds between two commands of the debugger.
DEBUGGER_PAUSE = 0.05


class Neighbour:
    name, per = "", "cpu"
    # Orders that the tool offers besides that on the command line: True if it can be loaded into a running JVM.
    loads_later = False
    # The build that it needs, if the usual one of a JDK lacks its library.
    jdk = None
    program = ["RegexStrings", "{seconds}"]

    def options(self, folder):
        """Returns the options of the JVM that load it."""
        return []

    def load(self, child, folder):
        """Loads it into a running JVM."""

    def accompany(self, child):
        """Acts while the JVM runs."""

    def count(self, folder, output):
        """Returns how much it delivered, or None if there is nothing."""


def jcmd(child, *words):
    tool = child.launcher.parent / "jcmd"
    done = subprocess.run([tool, str(child.pid), *map(str, words)], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ValueError(f"jcmd {words}: {done.stdout}{done.stderr}")


class Jfr(Neighbour):
    """JFR's CPU-time sampler, and its older sampler of running threads where the JDK lacks that."""

    name, loads_later = "JFR", True

    def __init__(self, jdk):
        self.has_cpu_time = feature(jdk) >= 25
        self.event = "jdk.CPUTimeSample" if self.has_cpu_time else "jdk.ExecutionSample"
        self.per = "cpu" if self.has_cpu_time else "wall"
        self.jfr = java(jdk).parent / "jfr"
        rate = "throttle" if self.has_cpu_time else "period"
        # The older sampler has no period below 10 ms.
        period = f"{INTERVAL_MS if self.has_cpu_time else 10} ms"
        self.settings = ["settings=none", f"+{self.event}#enabled=true", f"+{self.event}#{rate}={period}"]

    def options(self, folder):
        return ["-Xlog:jfr+startup=off", "-XX:StartFlightRecording:" + ",".join([*self.settings, f"filename={folder}/other.jfr"])]

    def load(self, child, folder):
        # jcmd takes a space for the end of a setting, unless its value is in quotation marks.
        *settings, rate = self.settings
        quoted = '{}="{}"'.format(*rate.split("="))
        jcmd(child, "JFR.start", *settings, quoted, f"filename={folder}/other.jfr", "dumponexit=true")

    def count(self, folder, output):
        done = subprocess.run([self.jfr, "summary", folder / "other.jfr"], capture_output=True, text=True)
        found = re.search(rf"{self.event}\s+(\d+)", done.stdout)
        return int(found[1]) if found else None


class AsyncProfiler(Neighbour):
    loads_later = True

    def __init__(self, library, event):
        self.library, self.event, self.name = library, event, f"async-profiler {event}"
        self.per = "wall" if event == "wall" else "cpu"

    def text(self, folder):
        return f"start,event={self.event},interval={INTERVAL_MS}ms,features=stats,file={folder}/other.jfr"

    def options(self, folder):
        return [f"-agentpath:{self.library}={self.text(folder)}"]

    def load(self, child, folder):
        jcmd(child, "JVMTI.agent_load", self.library, f'"{self.text(folder)}"')

    def count(self, folder, output):
        found = re.search(r"Collected (\d+) stacks", output)
        return int(found[1]) if found else None


class Jdwp(Neighbour):
    """A debugger that suspends and resumes the program and lists its threads, again and again."""

    name, per = "jdwp", "wall"
    LISTENS = re.compile(r"Listening for transport dt_socket at address: (\d+)")
    # Commands of the set VirtualMachine: AllThreads, Suspend, Resume.
    COMMANDS = [(1, 4), (1, 8), (1, 9)]

    def __init__(self, jdk):
        self.jdk, self.replies, self.errors = jdk, 0, []

    def options(self, folder):
        self.replies, self.errors = 0, []
        return ["-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:0"]

    def accompany(self, child):
        threading.Thread(target=self.debug, args=[child], daemon=True).start()

    def debug(self, child):
        while child.is_running() and not self.LISTENS.search(child.text("stdout")):
            time.sleep(DEBUGGER_PAUSE)
        found = self.LISTENS.search(child.text("stdout"))
        # The connection ends with the JVM.
        with contextlib.suppress(OSError, struct.error):
            with socket.create_connection(("127.0.0.1", int(found[1]))) as connection, connection.makefile("rb") as answers:
                connection.sendall(b"JDWP-Handshake")
                answers.read(14)
                for number in range(1, 1 << 30):
                    self.command(connection, answers, number)
                    time.sleep(DEBUGGER_PAUSE if number % len(self.COMMANDS) == 0 else 0)

    def command(self, connection, answers, number):
        connection.sendall(struct.pack(">IIBBB", 11, number, 0, *self.COMMANDS[number % len(self.COMMANDS)]))
        reply = 0
        while reply != number:
            length, reply, flags, error = struct.unpack(">IIBH", answers.read(11))
            answers.read(length - 11)
            # Events are commands of the VM, whose flags are 0.
            reply = reply if flags else 0
        self.replies += 1
        if error:
            self.errors.append(error)

    def count(self, folder, output):
        return None if self.errors else self.replies


class Instrumenting(Neighbour):
    """A Java agent that replaces classes by copies of themselves."""

    name, per = "instrumenting agent", "wall"

    def __init__(self, classes, folder):
        self.jar = folder / "instrumenting.jar"
        with zipfile.ZipFile(self.jar, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Premain-Class: InstrumentingAgent\nCan-Retransform-Classes: true\n"
                                                 "Can-Redefine-Classes: true\n")
            for file in [*classes.glob("InstrumentingAgent*.class"), classes / "ThreadCpu.class"]:
                jar.write(file, file.name)

    def options(self, folder):
        return [f"-javaagent:{self.jar}"]

    def count(self, folder, output):
        found = re.search(r"truth retransformed=(\d+)", output)
        return int(found[1]) if found else None


class ForeignTimer(Neighbour):
    """A JNI library with a CPU timer and a handler of its own."""

    def __init__(self, library, kind):
        self.name = f"JNI library with a timer of the {kind}"
        self.program = ["ForeignTimer", "{seconds}", str(library), kind, str(1000 * INTERVAL_MS)]

    def count(self, folder, output):
        found = re.search(r"truth timer=\w+ ticks=(\d+)", output)
        return int(found[1]) if found else None
