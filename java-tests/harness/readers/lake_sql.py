"""Answers ten questions about a lake in a directory by Tickwalk, and by SQL engines with the views that it prints.

usage: lake_sql.py DIRECTORY SERVICE TICKWALK ENGINE...
TICKWALK is the path of the command; engines are duckdb, clickhouse, datafusion and spark (with JAVA_HOME in the environment).
Prints {engine: {question: rows}} as JSON, the rows sorted; one engine is "tickwalk", and with clickhouse one is
"dashboard", which has the answers to the queries of collector/lake/grafana/dashboard.json. The collectors of the lake must not
have received anything twice, or accounts differ. Adds damaged files to the lake at the end.
"""

import collections
import datetime
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
LAKE = HERE.parents[2] / "collector/lake"
CACHE = HERE.parents[1] / ".cache"
UTC = datetime.timezone.utc
# The price of an hour of one CPU.
PRICE = 0.04


class Selection:
    """A service and its time in whole minutes, to which Tickwalk widens ranges, in two halves."""

    def __init__(self, service, first, last):
        minute = datetime.timedelta(minutes=1)
        self.service = service
        self.begin = first.astimezone(UTC).replace(second=0, microsecond=0)
        self.end = last.astimezone(UTC).replace(second=0, microsecond=0) + minute
        self.middle = self.begin + ((self.end - self.begin) // 2 // minute) * minute


def questions(selection):
    """Yields name, columns, and a view with its arguments or the rest of a query."""
    begin, middle, end = selection.begin, selection.middle, selection.end
    of_service = {"service": selection.service, "from": begin, "to": end}
    days = {"from_date": begin.date(), "to_date": end.date()}
    two = {"before_from": begin, "before_to": middle, "after_from": middle, "after_to": end}
    yield "hot methods", "name, self_ns, total_ns, self_samples", "hot_methods", of_service
    yield "flame graph", "stack, cpu_ns", "collapsed", of_service
    yield "comparison", "name, before_ns, after_ns", "compare_methods", {"service": selection.service, **two}
    yield "services", "service, cpu_ns, samples", "cpu_by_service", {"from": begin, "to": end}
    yield "versions", "service, value, cpu_ns", "cpu_by_label", {"label": "version", "from": begin, "to": end}
    yield "minutes", "minute, cpu_ns", "cpu_by_minute", of_service
    yield "threads", "thread, thread_kind, cpu_ns", "cpu_by_thread", of_service
    yield "cost", "service, date, cpu_ns, cost", "cost_by_day", {"price_of_hour": PRICE, **days}
    yield "kinds of code", "kind, sum(cpu_ns) AS sum_ns", \
        f"samples_with_frames WHERE service = '{selection.service}' AND frame = 1 GROUP BY kind", None
    yield "accounts", "session, kernel_ns, sampled_ns", f"accounts WHERE service = '{selection.service}'", None


def statements(views):
    """Yields the statements of a script without its comments."""
    text = "\n".join(line for line in views.splitlines() if not line.startswith("--"))
    yield from filter(str.strip, text.split(";\n"))


def plain(value):
    """Returns a value as all engines print it: times in UTC, numbers as numbers."""
    if isinstance(value, datetime.datetime):
        value = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, datetime.date):
        value = str(value)
    if isinstance(value, float):
        return round(value, 9)
    return value


def rows(found):
    return sorted([plain(value) for value in row] for row in found)


class DuckDb:
    def __init__(self, views):
        import duckdb

        self.connection = duckdb.connect()
        # Answers must not depend on it.
        self.connection.execute("SET TimeZone = 'Asia/Tokyo'")
        self.connection.execute(views)

    def span(self, service):
        return self.connection.execute("SELECT min(time), max(time) FROM samples WHERE service = ?", [service]).fetchone()

    def ask(self, columns, source, arguments):
        call = "" if arguments is None else "(" + ", ".join("?" for _ in arguments) + ")"
        query = f"SELECT {columns.replace('sum(cpu_ns)', 'sum(cpu_ns)::BIGINT')} FROM {source}{call}"
        return self.connection.execute(query, list((arguments or {}).values())).fetchall()

    def answers(self, selection):
        return {name: rows(self.ask(*question)) for name, *question in questions(selection)}


class ClickHouse:
    def __init__(self, views):
        sys.path.append(str(CACHE / "clickhouse"))
        from chdb import session

        self.session = session.Session()
        for statement in statements(views):
            self.session.query(statement)
        # Answers must not depend on it.
        self.session.query("SET session_timezone = 'Asia/Tokyo'")

    @staticmethod
    def literal(value):
        if isinstance(value, datetime.datetime):
            return f"'{value:%Y-%m-%d %H:%M:%S}'"
        return repr(value) if isinstance(value, float) else f"'{value}'"

    def query(self, text):
        text += " SETTINGS output_format_json_quote_64bit_integers = 0"
        return json.loads(str(self.session.query(text, "JSONCompact")))["data"]

    def ask(self, columns, source, arguments):
        named = ", ".join(f"{name} = {self.literal(value)}" for name, value in (arguments or {}).items())
        return self.query(f"SELECT {columns} FROM {source}" + (f"({named})" if named else ""))

    def answers(self, selection):
        return {name: rows(self.ask(*question)) for name, *question in questions(selection)}

    def dashboard(self, selection):
        """Returns the answers to all queries of the dashboard, by the title of the panel or the name of the variable."""
        dashboard = json.loads((LAKE / "grafana/dashboard.json").read_text())
        queries = {panel["title"]: target["rawSql"] for panel in dashboard["panels"] for target in panel["targets"]}
        queries |= {variable["name"]: variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"}
        quoted = "'" + selection.service.replace("'", "''") + "'"
        values = {"service:sqlstring": quoted, "price": PRICE, "__from": int(selection.begin.timestamp() * 1000),
                  "__to": int(selection.end.timestamp() * 1000)}
        return {name: self.query(re.sub(r"\$\{([\w:]+)\}", lambda variable: str(values[variable[1]]), query))
                for name, query in queries.items()}


class DataFusion:
    def __init__(self, views):
        sys.path.append(str(CACHE / "datafusion"))
        from datafusion import SessionContext

        self.context = SessionContext()
        for statement in statements(views):
            self.context.sql(statement).collect()

    @staticmethod
    def literal(value):
        if isinstance(value, datetime.datetime):
            return f"TIMESTAMP '{value:%Y-%m-%dT%H:%M:%SZ}'"
        return repr(value) if isinstance(value, float) else f"'{value}'"

    def ask(self, columns, source, arguments):
        if arguments is None:
            query = f"SELECT {columns} FROM {source}"
        else:
            query = f"EXECUTE {source}({', '.join(map(self.literal, arguments.values()))})"
        names = [column.rpartition(" ")[2] for column in columns.split(", ")]
        found = (row for batch in self.context.sql(query).collect() for row in batch.to_pylist())
        return [[row[name] for name in names] for row in found]

    def answers(self, selection):
        return {name: rows(self.ask(*question)) for name, *question in questions(selection)}


class Spark:
    def __init__(self, views):
        self.views = views

    @staticmethod
    def literal(value):
        if isinstance(value, datetime.datetime):
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}'"
        return f"{value}D" if isinstance(value, float) else f"'{value}'"

    def answers(self, selection):
        script, names = self.views, []
        for name, columns, source, arguments in questions(selection):
            call = "" if arguments is None else "(" + ", ".join(map(self.literal, arguments.values())) + ")"
            script += f"\nSELECT concat('{len(names)} ', to_json(struct(*))) FROM (SELECT {columns} FROM {source}{call});"
            names.append(name)
        found = {name: [] for name in names}
        for line in self.run(script):
            if match := re.match(r"(\d+) ({.*})$", line):
                found[names[int(match[1])]].append(json.loads(match[2]).values())
        return {name: rows(map(self.timed, answer)) for name, answer in found.items()}

    @staticmethod
    def timed(row):
        for value in row:
            is_time = isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value)
            yield datetime.datetime.fromisoformat(value) if is_time else value

    @staticmethod
    def run(script):
        opened = ["java.base/java.lang", "java.base/java.nio", "java.base/java.util", "java.base/sun.nio.ch", "java.base/java.net",
                  "java.base/java.lang.invoke", "java.base/java.util.concurrent", "java.base/sun.util.calendar", "java.base/java.io"]
        with tempfile.TemporaryDirectory(prefix="tickwalk-spark-") as scratch:
            file = pathlib.Path(scratch, "questions.sql")
            file.write_text(script)
            command = [
                pathlib.Path(os.environ["JAVA_HOME"], "bin/java"), "-Xmx2g",
                *(word for name in opened for word in ("--add-opens", f"{name}=ALL-UNNAMED")),
                "-cp", str(CACHE / "programs/spark/*"), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]",
                "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=4",
                "--conf", f"spark.sql.warehouse.dir={scratch}/warehouse", "--conf", "spark.sql.catalogImplementation=in-memory",
                "--class", "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver", "spark-internal", "-f", str(file)]
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr[-4000:])
            return done.stdout.splitlines()


class Tickwalk:
    def __init__(self, directory, command):
        self.url, self.command = f"file://{directory}", command

    def run(self, *words):
        done = subprocess.run([self.command, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def query(self, question, service, begin, end, **parameters):
        of_service = ["--process", service] if service else []
        span = ["--from", str(begin.timestamp()), "--to", str(end.timestamp())]
        more = [word for name, value in {"limit": 10000, **parameters}.items() for word in ("--with", f"{name}={value}")]
        return json.loads(self.run("query", question, self.url, *of_service, *span, *more))

    def methods(self, service, begin, end, **parameters):
        return self.query("methods", service, begin, end, **parameters)["methods"]

    def flame_graph(self, selection):
        span = ["--from", str(selection.begin.timestamp()), "--to", str(selection.end.timestamp())]
        text = self.run("export", "--format", "collapsed", "--unit", "ns", self.url, "--process", selection.service, *span, "-o", "-")
        sums = collections.Counter()
        title = re.compile(re.escape(selection.service) + r" \(\d+\);")
        for line in text.splitlines():
            stack, _, cpu_ns = line.rpartition(" ")
            # Exports of several processes begin stacks with the process.
            sums[title.sub("", stack, 1) if title.match(stack) else stack] += int(cpu_ns)
        return sums.items()

    def timeline(self, service, begin, end, by):
        """Returns sums by group, and by minute."""
        found = self.query("timeline", service, begin, end, by=by, bucket=60000)
        groups, minutes = collections.Counter(), collections.Counter()
        for row in found["rows"]:
            groups[row["group"]] += sum(row["cpu_ns"])
            for number, cpu_ns in enumerate(row["cpu_ns"]):
                ns = found["from_ns"] + number * found["bucket_ns"]
                minutes[datetime.datetime.fromtimestamp(ns // 10**9, UTC)] += cpu_ns
        return groups, {minute: cpu_ns for minute, cpu_ns in minutes.items() if cpu_ns}

    def answers(self, selection):
        service, begin, middle, end = selection.service, selection.begin, selection.middle, selection.end
        processes = self.query("processes", None, begin, end)["processes"]
        services = sorted({row["service"] for row in processes})
        methods = {name: self.methods(name, begin, end) for name in services}
        windows = [{row["name"]: row["self_ns"] for row in self.methods(service, *window)} if window[0] < window[1] else {}
                   for window in ((begin, middle), (middle, end))]
        sums = {name: [sum(row[column] for row in methods[name]) for column in ("self_ns", "self_samples")] for name in services}
        threads = collections.Counter()
        for row in self.query("threads", service, begin, end)["threads"]:
            threads[row["thread"], row["kind"]] += row["cpu_ns"]
        kinds = ["interpreted", "c1", "c2", "inlined", "native_method", "stub", "native", "vm", "marker"]
        by_kind = {kind: sum(row["self_ns"] for row in self.methods(service, begin, end, kind=kind)) for kind in kinds}
        accounts = self.query("statistics", service, begin, end)["processes"]
        return {name: rows(answer) for name, answer in {
            "hot methods": ([row[column] for column in ("name", "self_ns", "total_ns", "self_samples")] for row in methods[service]),
            "flame graph": self.flame_graph(selection),
            "comparison": ([name, *(window.get(name, 0) for window in windows)] for name in windows[0].keys() | windows[1].keys()),
            "services": ([name, *sums[name]] for name in services),
            "versions": ([name, value, cpu_ns] for name in services
                         for value, cpu_ns in self.timeline(name, begin, end, "label:version")[0].items()),
            "minutes": self.timeline(service, begin, end, "all")[1].items(),
            "threads": ([*names, cpu_ns] for names, cpu_ns in threads.items()),
            "cost": ([name, begin.date(), sums[name][0], sums[name][0] / 3.6e12 * PRICE] for name in services),
            "kinds of code": ([kind, cpu_ns] for kind, cpu_ns in by_kind.items() if cpu_ns),
            "accounts": ([row["process"], row["kernel_ns"], row["sampled_ns"]] for row in accounts),
        }.items()}


ENGINES = {"duckdb": DuckDb, "clickhouse": ClickHouse, "datafusion": DataFusion, "spark": Spark}


def damage(directory, service, moment):
    """Adds files that cannot be read to the folder of a service and the hour of a time."""
    folder = pathlib.Path(directory, f"service={service}", f"{moment:date=%Y-%m-%d/hour=%H}")
    folder.mkdir(parents=True, exist_ok=True)
    for table in ["samples", "stacks"]:
        (folder / f"{table}-damaged.parquet").write_bytes(b"PAR1 not a file of Parquet PAR1")


def check_pruning(directory, selection, connected, answers):
    """Fails if views with a time read files of another hour, or those with a service the files of another one."""
    of_one_service = ["hot methods", "flame graph", "comparison", "minutes", "threads"]
    of_all_services = ["services", "versions", "cost"]
    # DataFusion lists files once, and Spark is not kept running.
    asked = {"duckdb", "clickhouse"} & connected.keys()
    later = selection.end + datetime.timedelta(days=2)
    for service, moment, names in [("zz", later, of_one_service + of_all_services),
                                   (urllib.parse.quote(selection.service, safe=""), later, of_one_service + of_all_services),
                                   ("zz", selection.begin, of_one_service)]:
        damage(directory, service, moment)
        for engine, (name, *question) in itertools.product(asked, questions(selection)):
            if name in names and rows(connected[engine].ask(*question)) != answers[engine][name]:
                raise RuntimeError(f"{engine}, {name}: another answer when files of {service} at {moment} were added")


def open_engine(engine, directory, tickwalk):
    command = [tickwalk, "lake", "sql", engine, pathlib.Path(directory).as_uri()]
    return ENGINES[engine](subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    directory, service, tickwalk, *engines = sys.argv[1:]
    selection = Selection(service, *open_engine("duckdb", directory, tickwalk).span(service))
    answers = {"tickwalk": Tickwalk(directory, tickwalk).answers(selection)}
    connected = {engine: open_engine(engine, directory, tickwalk) for engine in engines}
    for engine, connection in connected.items():
        answers[engine] = connection.answers(selection)
        if engine == "clickhouse":
            answers["dashboard"] = connection.dashboard(selection)
    check_pruning(directory, selection, connected, answers)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
