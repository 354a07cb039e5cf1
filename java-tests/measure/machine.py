"""Describes the machine and the build that figures belong to."""

import os
import pathlib
import re
import subprocess
import time

from measure.harness import JDKS, REPOSITORY, jdk_folder

# Of linux/time.h; the time module does not define it.
CLOCK_MONOTONIC_COARSE = 6


def lines():
    """Yields the lines that describe the machine and the commit."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    megahertz = re.search(r"cpu MHz\s*: ([\d.]+)", cpuinfo)
    memory_kib = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    git = lambda *words: subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    changed = [line for line in git("status", "--porcelain").splitlines() if "design/" not in line]
    versions = []
    for jdk in JDKS:
        release = jdk_folder() / jdk / "release"
        found = re.search(r'JAVA_VERSION="([^"]*)"', release.read_text()) if release.exists() else None
        versions.append(found[1] if found else f"{jdk} missing")
    yield f"- processor: {model[1] if model else 'unknown'}, {float(megahertz[1]) / 1000 if megahertz else 0:.1f} GHz"
    yield f"- processors: {os.cpu_count()}; memory: {memory_kib / 2**20:.1f} GiB"
    yield f"- kernel: {os.uname().release}, scheduler tick {tick_ns() / 1e6:.0f} ms"
    yield f"- JDKs: {', '.join(versions)}"
    yield f"- commit: {git('rev-parse', '--short=12', 'HEAD')}{' with uncommitted changes' if changed else ''}"


def tick_ns():
    """Returns the scheduler's tick, which is the resolution of the coarse clock."""
    return round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)
