"""Prints CPU time and samples of each session of a lake in a directory, as DuckDB finds them.

usage: lake_sessions.py DIRECTORY SQL_DIRECTORY
Prints {"sessions": {session: [cpu_ns, samples]}, "accounts": {session: kernel_ns of its latest account}, "doubled": rows
that several collectors wrote} as JSON.
"""

import json
import pathlib
import sys

import duckdb


def read(directory, sql):
    """Returns what is printed."""
    connection = duckdb.connect()
    connection.execute("SET VARIABLE lake = ?", [str(directory)])
    connection.execute((pathlib.Path(sql) / "duckdb.sql").read_text())
    sums = "SELECT session, sum(cpu_ns)::BIGINT, sum(samples)::BIGINT, count(*) FROM samples GROUP BY session"
    found = connection.execute(sums).fetchall()
    files = f"{directory}/service=*/date=*/hour=*/samples-*.parquet"
    rows = connection.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchone()[0]
    accounts = connection.execute("SELECT session, arg_max(kernel_ns, sequence) FROM accounts GROUP BY session").fetchall()
    return {
        "sessions": {session: sums for session, *sums, _ in found},
        "accounts": dict(accounts),
        "doubled": rows - sum(count for *_, count in found),
    }


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], sys.argv[2])))
