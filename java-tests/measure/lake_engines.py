"""Compares Tickwalk, DuckDB, ClickHouse, DataFusion and Spark on ten questions about one lake.

  python3 java-tests/measure lake-engines [--jdk NAME] [--agents N] [--without ENGINE]...

N agents (12) replay two minutes of recordings of real JVMs to a collector with a lake in a directory. The questions and
their SQL are in java-tests/harness/readers/lake_sql.py and collector/lake/sql. Prints the number of rows of each answer;
ends with 1 if an engine answers differently, to the nanosecond.
Prerequisites: java-tests/fetch --clickhouse --datafusion --spark and cargo build --release -p cli -p collector --bins --example fleet.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from measure import lake_chaos
from measure.harness import HERE, binary, complain, fail, java

ENGINES = ["duckdb", "clickhouse", "datafusion", "spark"]
FETCHED = {"clickhouse": HERE / ".cache/clickhouse", "datafusion": HERE / ".cache/datafusion", "spark": HERE / ".cache/programs/spark"}
SECONDS, SPEED, SERVICES = 6, 20, 3


def fill(scratch, agents):
    """Fills a lake; returns its directory."""
    lake = scratch / "lake"
    collector = lake_chaos.Collector("collector", scratch, f"file://{lake}", os.environ, agents)
    collector.start()
    lake_chaos.run_fleet([collector.port], agents, SECONDS, SPEED, SERVICES).communicate()
    collector.stop()
    return lake


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", default="17", metavar="NAME", help="JDK of Spark, 17 or 21 (17)")
    parser.add_argument("--agents", type=int, default=12, metavar="N", help="agents (12)")
    parser.add_argument("--without", action="append", default=[], choices=ENGINES, help="leave out an engine")
    options = parser.parse_args()
    engines = [engine for engine in ENGINES if engine not in options.without]
    for engine in engines:
        if engine in FETCHED and not FETCHED[engine].is_dir():
            fail(f"{engine} is missing: run java-tests/fetch --{engine}, or add --without {engine}")
    environment = {**lake_chaos.python_environment(), "JAVA_HOME": str(java(options.jdk).parent.parent)}
    with tempfile.TemporaryDirectory(prefix="tickwalk-lake-") as scratch:
        lake = fill(pathlib.Path(scratch), options.agents)
        complain("the lake is filled")
        command = [sys.executable, HERE / "harness/readers/lake_sql.py", lake, "shop/0", binary("tickwalk"), *engines]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    answers = json.loads(done.stdout)
    own, wrong = answers["tickwalk"], []
    print(f"| question | rows | {' | '.join(engines)} |")
    print("|---|---|" + "---|" * len(engines))
    for question, rows in own.items():
        different = [engine for engine in engines if answers[engine][question] != rows]
        wrong += [f"{engine}, {question}" for engine in different]
        print(f"| {question} | {len(rows)} | " + " | ".join("different" if engine in different else "equal" for engine in engines) + " |")
    if wrong:
        fail(f"different from Tickwalk: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
