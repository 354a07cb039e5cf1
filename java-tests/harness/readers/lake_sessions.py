"""Prints CPU time and samples of each session of a lake in a directory, as DuckDB finds them.

usage: lake_sessions.py DIRECTORY SQL_DIRECTORY
Prints {"sessions": {session: [cpu_ns, samples]}, "doubled": rows that several collectors wrote} as JSON.
"""

import json
import pathlib
import sys

import duckdb


def sessions(directory, sql):
    """Returns the sums by session, and the rows that the view of samples leaves out."""
    connection = duckdb.connect()
    connection.execute("SET VARIABLE lake = ?", [str(directory)])
    connection.execute((pathlib.Path(sql) / "duckdb.sql").read_text())
    sums = "SELECT session, sum(cpu_ns)::BIGINT, sum(samples)::BIGINT, count(*) FROM samples GROUP BY session"
    found = connection.execute(sums).fetchall()
    files = f"{directory}/service=*/date=*/hour=*/samples-*.parquet"
    rows = connection.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchone()[0]
    return {session: sums for session, *sums, _ in found}, rows - sum(count for *_, count in found)


if __name__ == "__main__":
    found, doubled = sessions(sys.argv[1], sys.argv[2])
    print(json.dumps({"sessions": found, "doubled": doubled}))
