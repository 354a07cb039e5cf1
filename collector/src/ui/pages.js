// The pages: each asks for what it shows and fills the content; `fresh()` is false once another page was asked for.

const MAX_NODES = 100_000;
const ROWS_SHOWN = "500";

/** A model of the columns that the collector sends, with the weights of its one selection. */
function modelOf(tree) {
  const model = new Model(tree.names, tree.parents.slice(1), Int32Array.from(tree.frame_names), Uint8Array.from(tree.kinds));
  const { self_ns: self, total_ns: total } = tree;
  model.weights = { self: (node) => self[node], total: (node) => total[node], selfNs: self, totalNs: total };
  return model;
}

/** Both sides of a comparison: a box is as wide as its share of both, each side counted as a whole. */
function modelOfDifference({ tree, spans }) {
  const model = new Model(tree.names, tree.parents.slice(1), Int32Array.from(tree.frame_names), Uint8Array.from(tree.kinds));
  const whole = [spans.before_total_ns || 1, spans.after_total_ns || 1];
  const sides = [tree.before_ns, tree.after_ns].map((side, which) => side.map((ns) => ns / whole[which]));
  model.sides = sides;
  const total = (node) => (sides[0][node] + sides[1][node]) / 2;
  model.weights = { self: () => 0, total };
  return model;
}

function searchBox(placeholder, onInput) {
  const input = element("input");
  Object.assign(input, { type: "search", placeholder, spellcheck: false, autocomplete: "off" });
  input.addEventListener("input", () => onInput(input.value.trim()));
  return element("label", "search", input, element("kbd", "", "/"));
}

function toggle(id, titles, pressed, onChange) {
  const group = element("div", "segments");
  titles.forEach((title, index) => {
    const button = element("button", "", title);
    button.type = "button";
    if (index === 1) button.id = id;
    const isPressed = Number(pressed) === index;
    press([[button, isPressed]]);
    button.addEventListener("click", () => {
      // The key that stands for the second button goes back and forth.
      const next = index === 1 && button.getAttribute("aria-pressed") === "true" ? 0 : index;
      [...group.children].forEach((other, place) => press([[other, place === next]]));
      onChange(next === 1);
    });
    group.append(button);
  });
  return group;
}

/** Puts a graph with its bar into `target`; `tipOf` adds to what a box tells of itself. */
function putGraph(target, bar, tipOf) {
  const canvas = element("canvas");
  const spacer = element("div", "", canvas);
  spacer.id = "spacer";
  canvas.id = "canvas";
  const scroll = element("div", "scroll", spacer);
  scroll.tabIndex = 0;
  const path = element("div", "path");
  bar.append(path);
  target.append(bar, element("section", "graph", scroll));
  const hover = (box, event) => {
    const tip = $("tip");
    tip.hidden = !box;
    if (!box) return;
    tip.replaceChildren(element("div", "what", box.label), tipOf(box));
    placeTip(event);
  };
  const made = new Graph(canvas, scroll, spacer, {
    hover,
    zoomed: () => {
      const { zoom, view } = made;
      path.textContent = zoom === view.root ? "Click a box to zoom. Width is CPU time." : `Zoomed into ${zoom.label} · ${percent(zoom.total / view.root.total)}`;
    },
  });
  made.setTheme(isDark());
  return made;
}

function times(box, root) {
  const list = element("dl");
  for (const [title, ns] of [["Total", box.total], ["Self", box.self]]) {
    list.append(element("dt", "", title), element("dd", "", duration(ns)), element("dd", "", percent(ns / (root.total || 1))), element("dt"));
  }
  return list;
}

/** Marks the names that contain `text`, and says how much CPU time they stand for. */
function mark(on, model, text, output) {
  output.replaceChildren();
  on.matches = null;
  if (text) {
    let test = (name) => name.toLowerCase().includes(text.toLowerCase());
    if (/^\/.+\/$/.test(text)) {
      try {
        const pattern = new RegExp(text.slice(1, -1), "i");
        test = (name) => pattern.test(name);
      } catch {
        output.textContent = "not a valid regular expression";
        test = () => false;
      }
    }
    on.matches = Uint8Array.from(model.names, (name) => (test(name) ? 1 : 0));
    if (model.weights.selfNs) {
      const ns = model.matched(model.weights, on.matches);
      output.append("matched ", element("b", "", percent(ns / (on.view.root.total || 1))), ` · ${duration(ns)}`);
    }
  }
  on.draw();
}

function legend(model) {
  const ns = model.selfByKind(model.weights);
  const whole = model.weights.totalNs[0] || 1;
  return element("div", "legend", ...KINDS.map(({ name }, kind) => ({ name, kind })).filter(({ kind }) => ns[kind] > 0).map(({ name, kind }) => {
    const colour = element("i");
    colour.style.background = graph.swatch(kind);
    return element("span", "", colour, name, element("em", "", percent(ns[kind] / whole)));
  }));
}

async function flamePage(fresh) {
  const answer = await ask("flamegraph", [...selection(), ["max_nodes", MAX_NODES]]);
  if (!fresh()) return;
  const model = modelOf(answer.tree);
  const content = $("content");
  const kept = graph && content.dataset.page === "flame" ? { icicle: graph.icicle, reverse: graph.reverse } : { icicle: false, reverse: false };
  content.replaceChildren();
  content.dataset.page = "flame";
  const matched = element("output", "matched");
  const bar = element("div", "bar");
  const views = () => (graph.reverse ? new CallerView(model, model.weights) : new CalleeView(model, model.weights));
  bar.append(
    toggle("icicle", ["Flame", "Icicle"], kept.icicle, (icicle) => graph.orient(icicle)),
    toggle("reverse", ["Callees", "Callers"], kept.reverse, (reverse) => { graph.reverse = reverse; graph.show(views()); }),
    searchBox("Search a method, or /regex/", (text) => mark(graph, model, text, matched)),
    matched,
  );
  graph = putGraph(content, bar, (box) => times(box, graph.view.root));
  Object.assign(graph, kept);
  // What surrounds the graph decides how much room it has, so it is there first.
  content.append(legend(model));
  if (answer.nodes_left_out > 0) content.append(element("div", "legend", `${answer.nodes_left_out.toLocaleString("en")} of the lightest boxes are not shown.`));
  graph.show(views());
}

// ---- Tables ----

/** A table whose columns are [title, className, cell(row), value(row) to sort by or null]. */
function table(columns, rows, onRow) {
  let sorted = columns.findIndex(([, , , value]) => value);
  const body = element("tbody");
  const heads = columns.map(([title, className, , value], index) => {
    const head = element("th", `${className}${value ? " sortable" : ""}`, title);
    if (value) head.addEventListener("click", () => { sorted = index; fill(); });
    return head;
  });
  function fill() {
    const value = columns[sorted]?.[3];
    const ordered = value ? [...rows].sort((a, b) => value(b) - value(a)) : rows;
    heads.forEach((head, index) => head.classList.toggle("sorted", index === sorted));
    body.replaceChildren(...ordered.map((row) => {
      const line = element("tr", "", ...columns.map(([, className, cell]) => cellOf(className, cell(row))));
      if (onRow) line.addEventListener("click", () => onRow(row));
      return line;
    }));
  }
  fill();
  return element("table", "", element("thead", "", element("tr", "", ...heads)), body);
}

function cellOf(className, content) {
  const cell = element("td", className);
  cell.append(...(Array.isArray(content) ? content : [content]));
  return cell;
}

function methodCell(name) {
  const [place, short] = splitName(name);
  return place ? [short, element("small", "", place.slice(0, -1))] : [short];
}

function putTable(page, bar, made, note) {
  graph = null;
  const content = $("content");
  content.dataset.page = page;
  content.replaceChildren(bar, element("div", "pane", made, note ? element("p", "range", note) : ""));
}

async function methodsPage(fresh) {
  const answer = await ask("methods", [...selection(), ["limit", ROWS_SHOWN]]);
  if (!fresh()) return;
  const whole = answer.total_ns || 1;
  const pane = (text) => {
    const rows = answer.methods.filter((row) => row.name.toLowerCase().includes(text.toLowerCase()));
    return table([
      ["Self", "number", (row) => percent(row.self_ns / whole), (row) => row.self_ns],
      ["Self time", "number", (row) => duration(row.self_ns), null],
      ["Total", "number", (row) => percent(row.total_ns / whole), (row) => row.total_ns],
      ["Total time", "number", (row) => duration(row.total_ns), null],
      ["Samples", "number", (row) => row.self_samples.toLocaleString("en"), (row) => row.self_samples],
      ["Method: click for its callers and callees", "method", (row) => methodCell(row.name), null],
    ], rows, (row) => go({ tab: "method", method: row.name }));
  };
  const search = searchBox("Search a method", (text) => $("content").querySelector("table").replaceWith(pane(text)));
  const note = answer.rows_left_out > 0 ? `${answer.rows_left_out.toLocaleString("en")} methods with less CPU time are not shown.` : "";
  putTable("methods", element("div", "bar", search, element("span", "range", `${answer.samples.toLocaleString("en")} samples · ${duration(answer.total_ns)}`)), pane(""), note);
}

/** What a virtual thread ran on; nothing for other threads. */
function carriers(row) {
  const names = row.carriers || [];
  const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
  return names.length > 0 ? `virtual #${row.java_id} on ${names.slice(0, 2).join(", ")}${more}` : "";
}

async function threadsPage(fresh) {
  const answer = await ask("threads", [...selection(), ["limit", ROWS_SHOWN]]);
  if (!fresh()) return;
  const whole = answer.total_ns || 1;
  const known = (id) => processes.find((process) => process.process === id);
  const made = table([
    ["Share", "number lead", (row) => percent(row.cpu_ns / whole), (row) => row.cpu_ns],
    ["CPU time", "number", (row) => duration(row.cpu_ns), null],
    ["Kind", "", (row) => row.kind, null],
    ["Thread: click to look at it alone", "method", (row) => [row.thread, element("small", "", `${carriers(row) || `tid ${row.tid}`} · ${known(row.process)?.service || row.process}`)], null],
  ], answer.threads, (row) => go({ process: row.process, thread: row.thread, tab: "flame" }));
  const note = answer.rows_left_out > 0 ? `${answer.rows_left_out} threads with less CPU time are not shown.` : "";
  putTable("threads", element("div", "bar", element("span", "range", `${answer.threads.length} threads · ${duration(answer.total_ns)}`)), made, note);
}

async function methodPage(fresh) {
  const names = (await ask("methods", [...selection(), ["limit", ROWS_SHOWN], ["order", "total"]])).methods.map((row) => row.name);
  const method = at.method || names[0] || "";
  const [callers, callees] = method
    ? await Promise.all(["callers", "callees"].map((question) => ask(question, [...selection(), ["method", method], ["max_nodes", "20000"]])))
    : [null, null];
  if (!fresh()) return;
  const list = element("datalist", "", ...names.map((name) => new Option(name)));
  list.id = "names";
  const input = element("input");
  Object.assign(input, { type: "search", value: method, spellcheck: false });
  input.setAttribute("list", "names");
  input.addEventListener("change", () => go({ method: input.value.trim() || null }));
  const content = $("content");
  content.dataset.page = "method";
  content.replaceChildren(element("div", "bar", element("label", "search", input), list, element("span", "range", callees ? `${duration(callees.tree.total_ns[0])} in this method and below` : "")));
  if (!callers) return;
  const halves = element("div", "halves");
  content.append(halves);
  for (const [title, answer, icicle] of [["Called from, with the time spent here", callers, false], ["Calls", callees, true]]) {
    const part = element("section", "", element("h3", "", title));
    halves.append(part);
    const model = modelOf(answer.tree);
    model.names[model.name[0]] = method;
    const made = putGraph(part, element("div", "bar"), (box) => times(box, made.view.root));
    made.icicle = icicle;
    const view = new CalleeView(model, model.weights);
    view.root.label = method;
    made.show(view);
    graph = made;
  }
}

// ---- Comparison ----

function baseline() {
  return Object.fromEntries(SELECTION.filter((name) => at[`before.${name}`]).map((name) => [name, at[`before.${name}`]]));
}

function describe(from) {
  const process = processes.find((known) => known.process === from.process);
  const parts = [process ? process.service || process.command : "all processes"];
  if (from.thread) parts.push(`thread ${from.thread}`);
  if (from.frame) parts.push(`with ${from.frame}`);
  const moment = (text) => (/^[\d.]+$/.test(text) ? clock(Number(text) * 1e9) : text === "now" ? "now" : `${text.replace("-", "")} ago`);
  parts.push(from.from ? `${moment(from.from)} to ${from.to ? moment(from.to) : "now"}` : "all time");
  return parts.join(" · ");
}

async function comparePage(fresh) {
  const content = $("content");
  const base = baseline();
  const take = element("button", "plain", "Take what is selected as the baseline");
  take.addEventListener("click", takeBaseline);
  const swap = element("button", "plain", "Swap");
  swap.addEventListener("click", () => go(Object.fromEntries(SELECTION.flatMap((name) => [[name, base[name] || null], [`before.${name}`, at[name] || null]]))));
  const isChosen = Object.keys(at).some((name) => name.startsWith("before."));
  if (!isChosen) {
    graph = null;
    content.dataset.page = "compare";
    content.replaceChildren(element("div", "empty", element("p", "", "Choose a process or a range, take it as the baseline, then choose what to compare with it."), take));
    return;
  }
  const sides = [...Object.entries(base).map(([name, value]) => [`before.${name}`, value]), ...selection().map(([name, value]) => [`after.${name}`, value])];
  const [answer, rows] = await Promise.all([ask("diff", [...sides, ["max_nodes", MAX_NODES]]), ask("diff/methods", [...sides, ["limit", ROWS_SHOWN]])]);
  if (!fresh()) return;
  const model = modelOfDifference(answer);
  content.replaceChildren();
  content.dataset.page = "compare";
  const scale = element("span", "scale", "less", element("i"), "more than before");
  const head = element("div", "bar", element("span", "range grow", `Baseline: ${describe(base)} (${duration(answer.spans.before_total_ns)}). Now: ${describe(at)} (${duration(answer.spans.after_total_ns)}). Shares are of each side's whole.`), scale, swap, take);
  const bar = element("div", "bar", searchBox("Search a method, or /regex/", (text) => mark(graph, model, text, element("output"))));
  const halves = element("div", "halves");
  const upper = element("section");
  const sharesOf = (box) => [0, 1].map((side) => box.items.reduce((sum, node) => sum + model.sides[side][node], 0));
  content.append(head, halves);
  halves.append(upper);
  graph = putGraph(upper, bar, (box) => {
    const [before, after] = sharesOf(box);
    return element("div", "kinds", `before ${percent(before)} · now ${percent(after)} · `, changeOf(after - before));
  });
  graph.colour = (box) => {
    const [before, after] = sharesOf(box);
    return differenceColour((after - before) / Math.max(after + before, 1e-9), Math.abs(after - before));
  };
  graph.show(new CalleeView(model, model.weights));
  halves.append(element("section", "", element("div", "pane", differenceTable(rows))));
}

function changeOf(change) {
  const text = `${change >= 0 ? "+" : "−"}${(Math.abs(change) * 100).toFixed(1)} points`;
  return element("span", `change ${change > 0.0005 ? "more" : change < -0.0005 ? "less" : ""}`, text);
}

function differenceTable(answer) {
  return table([
    ["Change", "number", (row) => changeOf(row.change), (row) => Math.abs(row.change)],
    ["Before", "number", (row) => percent(row.before_share), (row) => row.before_share],
    ["Now", "number", (row) => percent(row.after_share), (row) => row.after_share],
    ["Time before", "number", (row) => duration(row.before_ns), null],
    ["Time now", "number", (row) => duration(row.after_ns), null],
    ["Method, by self time", "method", (row) => methodCell(row.name), null],
  ], answer.methods, (row) => go({ tab: "method", method: row.name }));
}

/** Blue for less, red for more; pale where the difference is too small to matter. */
function differenceColour(relative, absolute) {
  const strength = Math.min(1, Math.abs(relative)) * Math.min(1, absolute / 0.01 + 0.15);
  const hue = relative > 0 ? 4 : 214;
  return isDark() ? `hsl(${hue} ${strength * 62}% ${26 + strength * 20}%)` : `hsl(${hue} ${strength * 82}% ${90 - strength * 26}%)`;
}

// ---- Statistics ----

function rowsOf(pairs) {
  return element("dl", "", ...pairs.flatMap(([title, value]) => [element("dt", "", title), element("dd", "", String(value))]));
}

function card(account) {
  const lost = Object.values(account.lost_ns).reduce((sum, ns) => sum + ns, 0);
  const parts = [["sampled", account.sampled_ns, "var(--good)"], ["lost", lost, "var(--bad)"], ["unfinished periods", account.unfinished_ns, "var(--open)"], ["before timers ran", account.before_timer_ns, "var(--before)"]];
  const bar = element("div", "account-bar", ...parts.map(([title, ns, colour]) => {
    const part = element("i");
    part.style.cssText = `flex: ${ns} 0 0; background: ${colour}`;
    part.title = `${title}: ${duration(ns)}`;
    return part;
  }));
  const number = (count) => count.toLocaleString("en");
  return element("section", "card",
    element("h3", "", account.service || account.command),
    element("p", "", `${account.host} · pid ${account.pid} · JDK ${account.jvm} · ${account.state}${account.end ? ` (${account.end})` : ""}`),
    bar,
    rowsOf([
      ["CPU time explained by samples", percent(account.explained)],
      ...parts.map(([title, ns]) => [title, duration(ns)]),
      ...Object.entries(account.lost_ns).map(([cause, ns]) => [`lost: ${cause}`, `${duration(ns)} (${number(account.lost_samples[cause] || 0)})`]),
      ["samples of requests", `${number(account.samples)} of ${number(account.requests)}`],
      ["interval", duration(account.interval_ns)],
    ]),
    element("h3", "", "Why walks ended"),
    rowsOf(Object.entries(account.stops).sort((a, b) => b[1] - a[1]).map(([stop, count]) => [stop, number(count)])),
    element("h3", "", "Cost"),
    rowsOf([
      ["signal handler, median and 99 %", `${number(account.handler_cycles.p50)} · ${number(account.handler_cycles.p99)} cycles`],
      ["walk, median and 99 %", `${(account.walk_ns.p50 / 1e3).toFixed(1)} · ${(account.walk_ns.p99 / 1e3).toFixed(1)} µs`],
      ["drain, median and 99 %", `${(account.drain_ns.p50 / 1e3).toFixed(0)} · ${(account.drain_ns.p99 / 1e3).toFixed(0)} µs`],
      ["sampler thread", `${duration(account.sampler_cpu_ns)} (${percent(account.sampler_cpu_ns / (account.process_cpu_ns || 1))} of the process)`],
      ["queues", `${bytes(account.queue_bytes)}, grown ${number(account.queue_grown)}, most found ${number(account.queue_high_water)}`],
      ["snapshot pool", `${bytes(account.pool_bytes)}, exhausted ${number(account.pool_exhausted)}`],
      ["messages missing, names unknown", `${number(account.missing_messages)} · ${number(account.unknown_samples)}`],
    ]));
}

async function statisticsPage(fresh) {
  const answer = await ask("statistics", selection().filter(([name]) => name === "process"));
  if (!fresh()) return;
  graph = null;
  const content = $("content");
  content.dataset.page = "statistics";
  content.replaceChildren(element("div", "pane", element("div", "cards", ...answer.processes.map(card))));
}

const PAGES = { flame: flamePage, methods: methodsPage, threads: threadsPage, method: methodPage, compare: comparePage, statistics: statisticsPage };
