"""Prints the hot methods of a lake in a directory as SQL engines find them, by the views in collector/lake/sql.

usage: lake_sql.py DIRECTORY SQL_DIRECTORY SERVICE [CHDB_DIRECTORY]
Prints {engine: {method: [self_ns, total_ns, self_samples]}} as JSON.
"""

import json
import pathlib
import re
import sys

COLUMNS = "name, self_ns, total_ns, self_samples"
SPAN = "TIMESTAMPTZ '2000-01-01', TIMESTAMPTZ '2100-01-01'"

directory, sql, service = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]


def methods(rows):
    return {name: [int(number) for number in numbers] for name, *numbers in rows}


def duckdb_methods():
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET VARIABLE lake = ?", [directory])
    connection.execute((sql / "duckdb.sql").read_text())
    sums = [
        "SELECT sum(cpu_ns) FROM samples WHERE service = $1",
        f"SELECT sum(cpu_ns) FROM collapsed($1, {SPAN})",
        "SELECT sum(cpu_ns) FROM samples_with_frames WHERE service = $1 AND frame = 1",
        "SELECT sum(sampled_ns) FROM accounts WHERE service = $1",
    ]
    sums = [connection.execute(query, [service]).fetchone()[0] for query in sums]
    assert len(set(sums)) == 1, sums
    return methods(connection.execute(f"SELECT {COLUMNS} FROM hot_methods($1, {SPAN})", [service]).fetchall())


def clickhouse_methods():
    sys.path.append(sys.argv[4])
    from chdb import session

    def table(match):
        return f"file('{directory}/**/{match[1]}-*.parquet')"

    text = re.sub(r"LAKE\((\w+)\)", table, (sql / "clickhouse.sql").read_text())
    connection = session.Session()
    for statement in text.split(";\n"):
        if statement.strip():
            connection.query(statement)
    span = "from = '2000-01-01 00:00:00', to = '2100-01-01 00:00:00'"
    query = f"SELECT {COLUMNS} FROM hot_methods(service = '{service}', {span})"
    answer = connection.query(query, "JSONCompact")
    return methods(json.loads(str(answer))["data"])


answers = {"duckdb": duckdb_methods()}
if len(sys.argv) > 4:
    answers["clickhouse"] = clickhouse_methods()
print(json.dumps(answers))
