"""Kills collectors and breaks object storage under replayed agents, and compares the lake with the agents' accounts.

  python3 java-tests/measure lake-chaos [--minutes M] [--agents N] [--speed N] [--services N] [--calm] [--seed N]

N agents (200) replay recordings of real JVMs for M minutes (10) through a TCP balancer to three collectors with one lake
on an S3 server. Until 20 s before the end, collectors are ended at random, by SIGKILL or SIGTERM, and started again, and
requests of two of them to the object store are slow, refused or cut at random. Then the collectors end, and DuckDB and Tickwalk
read the lake. Ends with 1 if the CPU time or the samples of any session differ from the agent's own account, if its latest
account in the lake does, or if one is there twice.

--calm kills and breaks nothing, and agents connect without the balancer: for the cost of a collector with a lake.
--speed lets time pass faster for the agents: 2 sends in M minutes what JVMs send in twice as many.
Prerequisites: java-tests/fetch and cargo build --release -p cli -p collector --bins --example fleet.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from measure.harness import HERE, REPOSITORY, binary, complain, fail

COLLECTORS = 3
# Access keys whose requests fail at times.
FAILING = ["collector-1", "collector-2"]
FAULTS = ["none", "slow", "unavailable", "full", "cut"]
# Mean seconds between two events, longest seconds of a collector's absence, and quiet seconds at the end.
EVENT_SECONDS, ABSENT_SECONDS, QUIET_SECONDS = 3, 3, 20
# Restarts after which everything has to be uploaded.
MOST_RESTARTS = 20
SQL = REPOSITORY / "collector/lake/sql"
BUILD = "cargo build --release -p cli -p collector --bins --example fleet"


def python_environment():
    return {**os.environ, "PYTHONPATH": str(HERE / ".cache/python")}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class ObjectStore:
    """The S3 server of the tests."""

    def __init__(self, scratch):
        self.directory = scratch / "objects"
        command = [sys.executable, HERE / "harness/readers/object_store.py", self.directory, "lake"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=python_environment())
        self.endpoint = f"http://127.0.0.1:{self.process.stdout.readline().split()[1]}"
        self.url, self.files = "s3://lake/fleet", self.directory / "lake/fleet"

    def command(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def environment(self, key):
        return {**os.environ, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-west-1",
                "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "secret"}

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Collector:
    """A collector that is started again and again on one store."""

    def __init__(self, name, scratch, url, environment, agents):
        self.name, self.environment = name, environment
        self.port = free_port()
        self.store, self.log = scratch / name, scratch / f"{name}.log"
        self.command = [binary("tickwalk"), "collect", "--listen", f"127.0.0.1:{self.port}", "--http", "127.0.0.1:0",
                        "--store", self.store, "--lake", url, "--max-connections", str(max(256, agents + 10))]
        self.cpu_seconds, self.process = 0, None

    def start(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=log, env=self.environment)
        while self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        fail(f"{self.name} ended: {self.log.read_text()[-2000:]}")

    def has_ended(self, flags=os.WNOHANG):
        """Returns whether the process has ended; called until it has."""
        found, _, usage = os.wait4(self.process.pid, flags)
        if found:
            self.process.returncode = 0
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
        return found != 0

    def stop(self):
        """Lets it seal and upload what it has, within its time limit for that."""
        self.process.send_signal(signal.SIGTERM)
        self.has_ended(0)

    def waiting(self):
        """Returns whether intervals wait on its disk."""
        return any(path.name.isdigit() for path in (self.store / "lake").iterdir())


class Balancer(threading.Thread):
    """Forwards each connection to a collector that accepts it, chosen at random."""

    def __init__(self, collectors):
        super().__init__(daemon=True)
        self.port, self.targets = free_port(), [collector.port for collector in collectors]

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        server = await asyncio.start_server(self.forward, "127.0.0.1", self.port, backlog=4096)
        await server.serve_forever()

    async def forward(self, reader, writer):
        for port in random.sample(self.targets, len(self.targets)):
            try:
                other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            await asyncio.gather(self.pipe(reader, other_writer), self.pipe(other_reader, writer))
            return
        writer.close()

    @staticmethod
    async def pipe(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


def run_fleet(ports, agents, seconds, speed, services):
    """Starts agents that print their accounts as JSON."""
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    command = [binary("examples/fleet", build=BUILD), addresses, *map(str, (agents, seconds, speed, services))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def chaos(collectors, objects, end, events):
    """Kills collectors and breaks their requests until `end`, then mends everything."""
    dead = []
    while time.monotonic() < end:
        time.sleep(min(random.expovariate(1 / EVENT_SECONDS), max(end - time.monotonic(), 0)))
        now = time.monotonic()
        for back, collector in [entry for entry in dead if entry[0] <= now and entry[1].has_ended()]:
            collector.start()
            dead.remove((back, collector))
        alive = [collector for collector in collectors if all(collector is not other for _, other in dead)]
        if random.random() < 0.5 and alive:
            collector = random.choice(alive)
            # SIGTERM lets it seal an interval, which it otherwise does once a minute.
            number = random.choice([signal.SIGKILL, signal.SIGTERM])
            collector.process.send_signal(number)
            events[number.name] += 1
            dead.append((now + random.uniform(0, ABSENT_SECONDS), collector))
        else:
            fault = random.choice(FAULTS)
            objects.command(f"fault {random.choice(FAILING)} {fault}")
            events[fault] += 1
    for key in FAILING:
        objects.command(f"fault {key} none")
    for _, collector in dead:
        collector.has_ended(0)
        collector.start()


def drain(collectors):
    """Ends the collectors when everything of theirs is uploaded."""
    for collector in collectors:
        collector.stop()
        for _ in range(MOST_RESTARTS):
            if not collector.waiting():
                break
            collector.start()
            collector.stop()
        else:
            fail(f"{collector.name} cannot upload: {collector.log.read_text()[-2000:]}")


def by_duckdb(objects):
    """Returns the sums by session, their latest accounts, and the rows that several collectors have."""
    command = [sys.executable, HERE / "harness/readers/lake_sessions.py", objects.files, SQL]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=python_environment())
    return json.loads(done.stdout)


def by_tickwalk(objects, services):
    """Returns CPU time and samples of all sessions."""
    sums = collections.Counter()
    for service in range(services):
        command = [binary("tickwalk"), "query", "methods", objects.url, "--process", f"shop/{service}", "--with", "limit=10000"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=objects.environment("reader"))
        for row in json.loads(done.stdout)["methods"]:
            sums.update(cpu_ns=row["self_ns"], samples=row["self_samples"])
    return [sums["cpu_ns"], sums["samples"]]


def sizes(objects):
    """Returns bytes and files by table."""
    found = collections.defaultdict(lambda: [0, 0])
    for path in objects.files.glob("**/*.parquet"):
        table = found[path.name.partition("-")[0]]
        table[0] += path.stat().st_size
        table[1] += 1
    return found


def report(options, sent, collectors, objects, events):
    """Prints the figures; returns what is wrong."""
    agents, requests = sent["sessions"], objects.command("requests")
    lake = by_duckdb(objects)
    found = lake["sessions"]
    wrong = [session for session in agents.keys() | found.keys() if agents.get(session) != found.get(session)]
    accounts = [session for session, (cpu_ns, _) in agents.items() if lake["accounts"].get(session) != cpu_ns]
    totals = [sum(column) for column in zip(*agents.values())]
    cpu_seconds = sum(collector.cpu_seconds for collector in collectors)
    table_sizes = sizes(objects)
    stored = sum(size for size, _ in table_sizes.values())
    minutes = options.minutes
    print(f"| {options.agents} agents, {minutes:g} minutes, speed {options.speed}, {options.services} services | |\n|---|---|")
    rows = {
        "collectors killed by SIGKILL, and ended by SIGTERM": f"{events['SIGKILL']}, {events['SIGTERM']}",
        "changes of faults of the object store": ", ".join(f"{events[name]} {name}" for name in FAULTS),
        "connections": sent["connections"],
        "messages sent again": sent["resent_messages"],
        "samples merged by agents": sent["merged_samples"],
        "samples": totals[1],
        "rows that two collectors had": lake["doubled"],
        "sessions that differ from their agents' accounts": len(wrong),
        "sessions whose latest account differs": len(accounts),
        "samples for each CPU second of a collector": round(totals[1] / cpu_seconds),
        "requests to the object store by method": ", ".join(f"{count} {method}" for method, count in requests.items()),
        "bytes a sample at rest": f"{stored / totals[1]:.1f}",
    }
    for table, (size, files) in sorted(table_sizes.items()):
        rows[f"of these {table}, in {files} files"] = f"{size / totals[1]:.1f}"
    for name, value in rows.items():
        print(f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |")
    if options.with_tickwalk and (own := by_tickwalk(objects, options.services)) != totals:
        wrong.append(f"Tickwalk finds {own} of {totals}")
    wrong += [f"account of {session}: sent {agents[session]}, found {lake['accounts'].get(session)}" for session in accounts]
    return [f"{session}: sent {agents.get(session)}, found {found.get(session)}" if session in agents or session in found
            else session for session in wrong]


def run(options, scratch):
    objects = ObjectStore(scratch)
    names = [f"collector-{number + 1}" for number in range(COLLECTORS)]
    collectors = [Collector(name, scratch, objects.url, objects.environment(name), options.agents) for name in names]
    for collector in collectors:
        collector.start()
    balancer, events = Balancer(collectors), collections.Counter()
    balancer.start()
    ports = [collector.port for collector in collectors] if options.calm else [balancer.port]
    fleet = run_fleet(ports, options.agents, round(60 * options.minutes), options.speed, options.services)
    complain(f"{options.agents} agents for {options.minutes:g} minutes")
    try:
        if not options.calm:
            chaos(collectors, objects, time.monotonic() + 60 * options.minutes - QUIET_SECONDS, events)
        sent = json.loads(fleet.communicate()[0])
        complain("all is sent")
        drain(collectors)
        complain("all is uploaded")
        wrong = report(options, sent, collectors, objects, events)
        if sent["undelivered_sessions"]:
            wrong.append(f"{sent['undelivered_sessions']} sessions were not acknowledged")
        return wrong
    finally:
        fleet.kill()
        for collector in collectors:
            collector.process.kill()
        objects.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, metavar="M", help="time of the agents (10)")
    parser.add_argument("--agents", type=int, default=200, metavar="N", help="agents (200)")
    parser.add_argument("--speed", type=int, default=1, metavar="N", help="how fast time passes for the agents (1)")
    parser.add_argument("--services", type=int, default=10, metavar="N", help="services that the agents share (10)")
    parser.add_argument("--calm", action="store_true", help="kill and break nothing")
    parser.add_argument("--seed", type=int, metavar="N", help="repeats the events of a run as far as the machine allows")
    options = parser.parse_args()
    if not options.calm and 60 * options.minutes <= QUIET_SECONDS:
        fail(f"--minutes {options.minutes:g}: the last {QUIET_SECONDS} s are quiet; run for longer")
    # A selection of Tickwalk has a limit, and a service is one selection.
    options.with_tickwalk = options.agents * options.minutes * options.speed < 4000 * options.services
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="tickwalk-lake-") as scratch:
        wrong = run(options, pathlib.Path(scratch))
    if wrong:
        fail("the lake is wrong: " + "; ".join(wrong[:5]))


if __name__ == "__main__":
    main()
