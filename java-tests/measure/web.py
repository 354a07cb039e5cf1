"""The web server (workloads/programs/web/WebServer.java on Tomcat) and the load that it is put under.

The load generator is oha with `-q RATE --latency-correction`. One task of it enqueues requests on a schedule that does not
depend on responses; connections take them from the queue, and latency counts from the moment of enqueueing. A request
that waits because all connections are waiting for the server therefore counts with its wait: slow responses neither
postpone later requests nor hide their latency (no coordinated omission).
"""

import json
import re
import subprocess
import time

from measure.harness import HERE, compile_java, fail, program_folder

OHA = HERE / ".cache/oha/bin/oha"
# Far more than requests in flight at any rate that the server can keep.
CONNECTIONS = 64
# Seconds; a machine that others load is slow.
READY_SECONDS = 300


def arguments(scratch):
    """Returns what follows `java` and its options to run the server."""
    jars = program_folder("tomcat")
    classes = scratch / "web-classes"
    if not classes.is_dir():
        compile_java([HERE / "workloads/programs/web/WebServer.java"], classes, "-cp", f"{jars}/*")
    return ["-cp", f"{classes}:{jars}/*", "WebServer"]


def wait_for_port(child, output):
    """Returns the port that the server printed to the file `output`."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and child.poll() is None:
        if port := re.search(r"^port (\d+)\n", output.read_text(), re.MULTILINE):
            return int(port[1])
        time.sleep(0.02)
    fail(f"the web server did not start: {output.read_text()[-500:]}")


def require_generator():
    if not OHA.exists():
        fail("the load generator oha is missing: run java-tests/fetch --web")


def load(port, rate, seconds):
    """Sends requests at a fixed rate; returns latencies in seconds by percentile, and counts."""
    require_generator()
    command = [OHA, "-q", str(rate), "-n", str(round(rate * seconds)), "-c", str(CONNECTIONS), "--latency-correction",
               "--no-tui", "--output-format", "json", f"http://127.0.0.1:{port}/search"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"oha ended with status {done.returncode}: {done.stderr[-500:]}")
    result = json.loads(done.stdout)
    answered = result["statusCodeDistribution"].get("200", 0)
    return {
        "p50": result["latencyPercentiles"]["p50"], "p99": result["latencyPercentiles"]["p99"],
        "p99.9": result["latencyPercentiles"]["p99.9"], "answered": answered,
        "failed": round(rate * seconds) - answered, "rate": result["summary"]["requestsPerSec"],
    }
