"""Compares what independent readers see in exports of a recording with the recording's own sums.

usage: readers.py TICKWALK RECORDING JFR NODE_MODULES

Each reader returns samples (or None where the format has no count), CPU time in nanoseconds, CPU time by thread
(kernel thread id; None where the format has no threads), and CPU time by the method on top of the stack. All of it has
to be equal. Where a format counts sampling intervals, its numbers have to be the recording's within half an interval, and
the reader's sums have to be those of the numbers.
"""

import base64
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, namedtuple

Seen = namedtuple("Seen", "samples cpu_ns threads leaves")

TICKWALK, RECORDING, JFR, NODE_MODULES = sys.argv[1:5]
HERE = pathlib.Path(__file__).parent
# Most loads of a page that does not show all of its rows yet.
DUMPS = 5


def run(*command, tries=1, **options):
    for _ in range(tries):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
        if done.returncode == 0:
            break
    else:
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def plain(name):
    """A name as collapsed stacks have it."""
    return name.replace(";", ":")


def sums(rows):
    """Sums (samples, ns, thread id, leaf) up."""
    threads, leaves, samples, cpu_ns = Counter(), Counter(), 0, 0
    for count, ns, tid, leaf in rows:
        samples += count
        cpu_ns += ns
        threads[tid] += ns
        leaves[plain(leaf)] += ns
    return Seen(samples, cpu_ns, threads, leaves)


def truth():
    account = json.loads(run(TICKWALK, "top", "--json", RECORDING))
    threads = Counter()
    for thread in account["threads"]:
        if thread["sampled_ns"]:
            threads[thread["tid"]] += thread["sampled_ns"]
    leaves = Counter()
    for line in run(TICKWALK, "export", RECORDING, "--format", "collapsed", "--unit", "ns").splitlines():
        stack, ns = line.rsplit(" ", 1)
        leaves[stack.rsplit(";", 1)[-1]] += int(ns)
    return Seen(account["samples"], account["cpu_ns"]["sampled"], threads, leaves), account


def read_pprof(file):
    profile = json.loads(run("node", HERE / "pprof.js", file))
    assert profile["types"] == ["samples/count", "cpu/nanoseconds"], profile["types"]
    assert any("of CPU time explained" in comment for comment in profile["comments"]), profile["comments"]
    return sums((*row["values"], row["tid"], row["leaf"]) for row in profile["samples"])


def read_jfr(file):
    """Through `jfr print` of JDK 25; its own totals through `jfr view` are compared as well."""
    events = json.loads(run(JFR, "print", "--json", "--stack-depth", "1", "--events", "jdk.CPUTimeSample", file))
    rows = []
    for event in events["recording"]["events"]:
        values = event["values"]
        period = re.fullmatch(r"PT(?:(\d+)M)?(?:([\d.]+)S)?", values["samplingPeriod"])
        ns = round((int(period[1] or 0) * 60 + float(period[2] or 0)) * 1e9)
        method = values["stackTrace"]["frames"][0]["method"]
        kind = method["type"]["name"].replace("/", ".")
        no_java = {"marker", "stub", "native", "vm", "unknown", "unspecified", "kernel"}
        leaf = method["name"] if kind in no_java else f"{kind}.{method['name']}"
        rows.append((1, ns, values["eventThread"]["osThreadId"], leaf))
    seen = sums(rows)
    statistics = run(JFR, "view", "cpu-time-statistics", file)
    total = int(re.search(r"Total Samples: ([\d,]+)", statistics)[1].replace(",", ""))
    assert total == seen.samples, (total, seen.samples)
    hot = run(JFR, "view", "--width", "400", "cpu-time-hot-methods", file).splitlines()
    top = hot[[line.startswith("---") for line in hot].index(True) + 1].split("(")[0]
    print(f"           jfr view: total samples {total}, hottest {top}")
    return seen


def read_speedscope(file):
    import jsonschema

    profile = json.loads(pathlib.Path(file).read_text())
    schema = next(pathlib.Path(NODE_MODULES, "speedscope/dist/release").glob("file-format-schema.json"))
    jsonschema.validate(profile, json.loads(schema.read_text()))
    frames = profile["shared"]["frames"]
    shows = SpeedscopePage.of(profile, 0).threads
    asked = [(thread["name"], shown_in_speedscope(thread["endValue"])) for thread in profile["profiles"]]
    assert shows == asked, f"speedscope lists {shows}, the file has {asked}; a single thread is not listed"
    for index, thread in enumerate(profile["profiles"]):
        leaves = Counter()
        for stack, ns in zip(thread["samples"], thread["weights"], strict=True):
            leaves[frames[stack[-1]]["name"]] += ns
        wanted = {name: shown_in_speedscope(ns) for name, ns in leaves.items()}
        page = SpeedscopePage.of(profile, index)
        got = {name: time for name, time in page.methods.items() if name in leaves}
        different = [(name, got.get(name), wanted.get(name)) for name in wanted if got.get(name) != wanted[name]]
        assert not different, f"{thread['name']} in speedscope (shown, wanted): {different[:5]}"
    print(f"           speedscope: {len(shows)} threads, first {' '.join(shows[0])}; self times of all methods as shown")
    rows = []
    for thread in profile["profiles"]:
        tid = int(re.search(r"\(tid (\d+)\)$", thread["name"])[1])
        assert thread["unit"] == "nanoseconds" and thread["endValue"] == sum(thread["weights"])
        for stack, ns in zip(thread["samples"], thread["weights"], strict=True):
            rows.append((0, ns, tid, frames[stack[-1]]["name"]))
    return sums(rows)._replace(samples=None)


class SpeedscopePage(html.parser.HTMLParser):
    """The view of a file in speedscope after importing it: its threads with their times, and the methods of one thread
    with their self times."""

    def __init__(self, text):
        super().__init__()
        self.threads, self.methods, self.row = [], {}, []
        self.feed(text)

    @classmethod
    def of(cls, profile, thread):
        with tempfile.TemporaryDirectory() as directory:
            text = json.dumps(profile | {"activeProfileIndex": thread})
            script = pathlib.Path(directory, "profile.js")
            encoded = base64.b64encode(text.encode()).decode()
            script.write_text(f'speedscope.loadFileFromBase64("profile.speedscope.json", "{encoded}")')
            page = f"file://{NODE_MODULES}/speedscope/dist/release/index.html"
            # High enough for all rows of the table, 20 pixels each, which are made only where they can be seen.
            methods = {frame for stack in profile["profiles"][thread]["samples"] for frame in stack}
            height = 1000 + 20 * len(methods)
            assert height <= 32_000, f"Chromium shows no window for {len(methods)} methods; take a smaller recording"
            names = {profile["shared"]["frames"][method]["name"] for method in methods}
            # Chromium may write the page before the rows are made.
            for _ in range(DUMPS):
                found = cls(dom(f"{page}#localProfilePath={script}&view=sandwich", f"--window-size=1400,{height}"))
                if names <= found.methods.keys():
                    break
            return found

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.row = []
        elif tag == "td":
            self.row.append("")

    def handle_data(self, text):
        if self.row:
            self.row[-1] += text

    def handle_endtag(self, tag):
        if tag != "tr" or len(self.row) != 3:
            return
        if self.row[0].isdigit():
            self.threads.append((self.row[1], self.row[2]))
        else:
            self.methods[self.row[2]] = self.row[1].split(" (")[0]


def shown_in_speedscope(ns):
    """A time as speedscope writes it."""
    seconds = ns / 1e9
    if seconds >= 60:
        return f"{int(seconds // 60)}:{int(seconds % 60):02}"
    if seconds >= 1:
        return f"{seconds:.2f}s"
    return f"{ns / 1e6:.2f}ms" if ns >= 1e6 else f"{ns / 1e3:.2f}µs"


def dom(page, *options):
    """A page as Chromium has built it."""
    browser = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"])))
    with tempfile.TemporaryDirectory() as profile:
        return run(browser, "--headless=old", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync",
                   f"--user-data-dir={profile}", "--virtual-time-budget=9000", *options, "--dump-dom", page)


def firefox_threads(file):
    """Queries a file by the Firefox Profiler's own command line; returns threads with their functions."""
    program = ["node", f"{NODE_MODULES}/@firefox-devtools/profiler-cli/dist/profiler-cli.js"]
    sessions = tempfile.TemporaryDirectory()
    environment = {"env": os.environ | {"PROFILER_CLI_SESSION_DIR": sessions.name}}

    def ask(*question):
        return json.loads(run(*program, *question, "--json", "--session", session, **environment))

    found = []
    try:
        # It gives its server half a second to start, which a busy machine does not always make.
        loaded = run(*program, "load", file, tries=20, **environment)
        session = re.search(r"Session started: (\w+)", loaded)[1]
        for thread in ask("thread", "list")["threads"]:
            listed = ask("thread", "functions", "--limit", "0", "--include-idle", "--thread", thread["threadHandle"])
            assert listed["weightType"] == "samples"
            found.append((thread, [entry for entry in listed["functions"] if entry["selfSamples"]]))
    finally:
        run(*program, "stop", "--all", **environment)
    return found


def half_an_interval(what, intervals, ns):
    """Fails if a number of intervals is not that of a CPU time."""
    interval = ACCOUNT["interval_ns"]
    assert abs(intervals * interval - ns) * 2 <= interval, f"{what}: {intervals} intervals of {interval} ns for {ns} ns"


def same_intervals(found, written):
    """Fails if a reader's intervals by method are not those of the file."""
    different = [(name, found[name], written[name]) for name in found.keys() | written.keys() if found[name] != written[name]]
    assert not different, f"intervals by method (read, written): {different[:5]}"


def intervals_of(functions, counted):
    for function in functions:
        counted[plain(function["name"])] += function["selfSamples"]


def read_firefox(file):
    """CPU time by thread, which the file has in microseconds; by method it has intervals."""
    profile = json.loads(pathlib.Path(file).read_text())
    written = Counter()
    for thread in profile["threads"]:
        names = profile["shared"]["stringArray"] if "shared" in profile else thread["stringArray"]
        # Newer versions of the format have the tables once for all threads.
        tables = profile["shared"] if "stackTable" in profile.get("shared", {}) else thread
        intervals, ns = 0, 0
        samples = thread["samples"]
        for stack, weight, micros in zip(samples["stack"], samples["weight"], samples["threadCPUDelta"], strict=True):
            intervals, ns = intervals + weight, ns + round((micros or 0) * 1e3)
            if weight:
                function = tables["frameTable"]["func"][tables["stackTable"]["frame"][stack]]
                written[plain(names[tables["funcTable"]["name"][function]])] += weight
        half_an_interval(thread["name"], intervals, ns)
    threads, counted = Counter(), Counter()
    for thread, functions in firefox_threads(file):
        threads[int(str(thread["tid"]).split(".")[0])] += round(thread["cpuMs"] * 1e6)
        intervals_of(functions, counted)
    same_intervals(counted, written)
    return Seen(None, sum(threads.values()), threads, None)


def read_collapsed(file):
    """Without threads: the reader repeats a stack as often as its line says."""
    exact = dict(line.rsplit(" ", 1) for line in run(TICKWALK, "export", RECORDING, "--format", "collapsed", "--unit", "ns").splitlines())
    written, counted = Counter(), Counter()
    for line in pathlib.Path(file).read_text().splitlines():
        stack, intervals = line.rsplit(" ", 1)
        half_an_interval(stack, int(intervals), int(exact.pop(stack)))
        written[stack.rsplit(";", 1)[-1]] += int(intervals)
    for stack, ns in exact.items():
        half_an_interval(stack, 0, int(ns))
    for _, functions in firefox_threads(file):
        intervals_of(functions, counted)
    same_intervals(counted, written)
    return Seen(None, None, None, None)


def read_otlp(file):
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

    request = profiles_service_pb2.ExportProfilesServiceRequest()
    request.ParseFromString(pathlib.Path(file).read_bytes())
    tables = request.dictionary
    text = tables.string_table
    first = ["mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"]
    for table in first:
        assert not getattr(tables, table)[0].ByteSize(), f"element 0 of {table} is not empty"
    assert text[0] == ""
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    assert len(profile.profile_id) == 16
    sample_type = (text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex])
    assert sample_type == ("samples", "count"), sample_type
    rows = []
    for sample in profile.samples:
        attributes = {}
        for index in sample.attribute_indices:
            entry = tables.attribute_table[index]
            attributes[text[entry.key_strindex]] = entry.value
        location = tables.location_table[tables.stack_table[sample.stack_index].location_indices[0]]
        leaf = text[tables.function_table[location.lines[0].function_index].name_strindex]
        rows.append((0, sample.values[0] * profile.period, int(attributes["thread.id"].string_value), leaf))
    taken = [tables.attribute_table[index] for index in profile.attribute_indices]
    samples = next(entry.value.int_value for entry in taken if text[entry.key_strindex] == "tickwalk.samples")
    return sums(rows)._replace(samples=samples)


def read_parquet(file):
    """Through DuckDB; Arrow's reader has to agree on the sum."""
    import duckdb
    import pyarrow.compute
    import pyarrow.parquet

    base = str(file).removesuffix(".parquet")
    rows = duckdb.sql(
        f"""select sum(samples)::bigint, sum(cpu_ns)::bigint, thread_id, frames[1], details[1]
            from '{base}.samples.parquet' join '{base}.stacks.parquet' using (stack_id)
            group by thread_id, frames[1], details[1]"""
    ).fetchall()
    for _, _, _, leaf, details in rows:
        shown = f"{details['class']}.{details['method']}" if details["class"] else details["method"]
        assert leaf == shown, (leaf, details)
    table = pyarrow.parquet.read_table(f"{base}.samples.parquet")
    seen = sums(row[:4] for row in rows)
    arrow = pyarrow.compute.sum(table["cpu_ns"]).as_py()
    assert arrow == seen.cpu_ns and table.num_rows > 0, (arrow, table.num_rows)
    stacks = pyarrow.parquet.read_table(f"{base}.stacks.parquet")
    lists = zip(stacks["frames"].to_pylist(), stacks["details"].to_pylist(), strict=True)
    assert all(len(names) == len(details) > 0 for names, details in lists)
    return seen


READERS = [
    ("pprof", "pb.gz", "pprof-format (npm)", read_pprof),
    ("jfr", "jfr", "jfr of JDK 25", read_jfr),
    ("speedscope", "speedscope.json", "speedscope's page and schema", read_speedscope),
    ("firefox", "firefox.json", "Firefox Profiler (npm profiler-cli)", read_firefox),
    ("otlp", "otlp", "opentelemetry-proto (PyPI)", read_otlp),
    ("parquet", "parquet", "DuckDB and Arrow", read_parquet),
    ("collapsed", "collapsed", "Firefox Profiler (npm profiler-cli)", read_collapsed),
]


def compare(name, seen, expected):
    """Complaints about differences."""
    complaints = []
    if seen.samples is not None and seen.samples != expected.samples:
        complaints.append(f"samples {seen.samples}, recorded {expected.samples}")
    if seen.cpu_ns is not None and seen.cpu_ns != expected.cpu_ns:
        complaints.append(f"CPU ns {seen.cpu_ns}, recorded {expected.cpu_ns}")
    for what, got, want in [("thread", seen.threads, expected.threads), ("method", seen.leaves, expected.leaves)]:
        if got is None:
            continue
        different = [key for key in got.keys() | want.keys() if got[key] != want[key]]
        complaints += [f"{what} {key}: {got[key]} ns, recorded {want[key]}" for key in different[:5]]
    return [f"{name}: {complaint}" for complaint in complaints]


EXPECTED, ACCOUNT = truth()


def main():
    expected, account = EXPECTED, ACCOUNT
    top = expected.leaves.most_common(1)[0]
    print(f"{RECORDING}: {expected.samples} samples, {expected.cpu_ns} ns, {len(expected.threads)} threads, "
          f"{len(expected.leaves)} methods, top {top[0]} {top[1]} ns, explained {account['explained']:.4f}")
    complaints = []
    with tempfile.TemporaryDirectory() as directory:
        for name, suffix, reader, read in READERS:
            file = pathlib.Path(directory, f"export.{suffix}")
            weighed = ["--cpu-time-samples"] if suffix == "jfr" else []
            run(TICKWALK, "export", *weighed, RECORDING, "-o", file)
            seen = read(file)
            found = compare(name, seen, expected)
            complaints += found
            hottest = seen.leaves.most_common(1)[0] if seen.leaves else ("in intervals", "")
            print(f"  {'ok  ' if not found else 'FAIL'} {name:<11}{reader:<36} samples {seen.samples}, {seen.cpu_ns} ns, "
                  f"{'no' if seen.threads is None else len(seen.threads)} threads, {len(seen.leaves or [])} methods, top {hottest[0]} {hottest[1]}")
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)


main()
