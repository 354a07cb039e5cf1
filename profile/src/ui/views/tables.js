// The tables of methods and threads.

const ROWS_SHOWN = "500";

/** A view with a table; `tableOf(isFound)` makes the table of the rows whose names a search finds. */
function tableView(name, summary, tableOf, footnote) {
  const place = element("table");
  putContent(name, element("div", "bar", element("span", "range", summary)), element("div", "pane", place, footnote ? element("p", "range", footnote) : ""));
  let shown = place;
  searchIn((text) => {
    const made = tableOf(finder(text), text);
    shown.replaceWith(made);
    shown = made;
    keepInAddress({ search: text || null });
  });
}

/** Returns a test of names for a search text; one that is not valid finds all. */
const finder = (text) => matcherOf(text) || (() => true);

async function methodsView(isCurrent, surroundings) {
  const order = state.sort === "2" ? "total" : "self";
  const [answer] = await Promise.all([ask("methods", [...selection(), ["limit", ROWS_SHOWN], ["order", order]]), surroundings]);
  if (!isCurrent()) return;
  const whole = answer.total_ns || 1;
  const columns = [
    ["Self", "number", (row) => percent(row.self_ns / whole), (row) => row.self_ns, `Share of ${timeName()} in the method itself`],
    ["Self time", "number wide", (row) => duration(row.self_ns), null],
    ["Total", "number", (row) => percent(row.total_ns / whole), (row) => row.total_ns, `Share of ${timeName()} in the method and in everything it called`],
    ["Total time", "number wide", (row) => duration(row.total_ns), null],
    ["Samples", "number wide", (row) => number(row.self_samples), (row) => row.self_samples, "Samples in the method itself"],
    ["Method: click for its callers and callees", "method", (row) => methodCell(row.name), null],
  ];
  const tableOf = (isFound, text) => {
    const rows = answer.methods.filter((row) => isFound(row.name));
    const empty = text ? `No method contains “${text}”.` : "No samples in this selection.";
    return table(columns, rows, (row) => go({ tab: "method", method: row.name, sort: null }), empty);
  };
  const footnote = answer.rows_left_out > 0 ? `${number(answer.rows_left_out)} methods with less ${timeName()} are not shown.` : "";
  tableView("methods", `${number(answer.samples)} samples · ${duration(answer.total_ns)} ${timeName()}`, tableOf, footnote);
}

/** The carriers of a virtual thread; empty for other threads. */
function carriersOf(row) {
  const names = row.carriers || [];
  const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
  return names.length > 0 ? `virtual #${row.java_id} on ${names.slice(0, 2).join(", ")}${more}` : "";
}

async function threadsView(isCurrent, surroundings) {
  const [answer] = await Promise.all([ask("threads", [...selection(), ["limit", ROWS_SHOWN]]), surroundings]);
  if (!isCurrent()) return;
  const whole = answer.total_ns || 1;
  const processOf = (row) => {
    const known = processes.find((process) => process.process === row.process);
    return known ? nameOf(known) : row.process;
  };
  const idOf = (row) => carriersOf(row) || (row.tid ? `tid ${row.tid}` : "a group");
  const columns = [
    ["Share", "number lead", (row) => percent(row.cpu_ns / whole), (row) => row.cpu_ns, `Share of the ${timeName()} of the selection`],
    [timeName() === TIMES.wall ? "Wall time" : "CPU time", "number", (row) => duration(row.cpu_ns), null],
    ["Kind", "kind", (row) => row.kind, null],
    ["Thread: click to show it alone", "method", (row) => [row.thread || "(no name)", element("small", "", `${idOf(row)} · ${processOf(row)}`)], null],
  ];
  const tableOf = (isFound, text) => {
    const rows = answer.threads.filter((row) => isFound(row.thread));
    const empty = text ? `No thread contains “${text}”.` : "No samples in this selection.";
    return table(columns, rows, (row) => go({ process: row.process, thread: row.thread, tab: "flame", sort: null, search: null }), empty);
  };
  const footnote = answer.rows_left_out > 0 ? `${number(answer.rows_left_out)} threads with less ${timeName()} are not shown.` : "";
  const count = answer.threads.length + answer.rows_left_out;
  tableView("threads", `${number(count)} threads · ${duration(answer.total_ns)} ${timeName()}`, tableOf, footnote);
}
