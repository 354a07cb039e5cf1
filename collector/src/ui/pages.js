// The pages: each asks for what it shows and fills the content; `fresh()` is false once another page was asked for.

/** More than this are neither sent nor held: the lightest of them are a small part of a pixel each. */
const MAX_NODES = 150_000;
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
  model.ownShares = sides.map((side) => {
    const own = Float64Array.from(side);
    for (let node = 1; node < model.count; node++) own[model.parent[node]] -= side[node];
    return own;
  });
  // What is left of differences between rounded numbers is nothing.
  const selfNs = model.ownShares[0].map((share, node) => (share + model.ownShares[1][node]) / 2).map((share) => (share > 1e-9 ? share : 0));
  model.weights = { self: () => 0, total, selfNs };
  return model;
}

function searchBox(placeholder, onInput) {
  const input = element("input");
  Object.assign(input, { type: "search", placeholder, spellcheck: false, autocomplete: "off", value: at.search || "" });
  input.addEventListener("input", () => onInput(input.value.trim()));
  return element("label", "search", input, element("kbd", "", "/"));
}

/** What fills a page that has nothing to show. */
function nothing(text) {
  const all = element("button", "plain", "Show everything");
  all.addEventListener("click", () => go(Object.fromEntries(SELECTION.map((name) => [name, null]))));
  return element("div", "empty", element("p", "", text), selection().length > 0 ? all : "");
}

function toggle(id, titles, pressed, onChange) {
  const group = element("div", "segments");
  group.setAttribute("role", "group");
  titles.forEach(([title, hint], index) => {
    const button = element("button", "", title);
    button.type = "button";
    button.title = hint;
    if (index === 1) button.id = id;
    const isPressed = Number(Boolean(pressed)) === index;
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

/** Puts a graph with its bar into `target`; `tipOf` adds to what a box tells of itself, `onZoom` hears of zooms. */
function putGraph(target, bar, tipOf, onZoom) {
  const canvas = element("canvas", "boxes");
  const spacer = element("div", "spacer", canvas);
  const scroll = element("div", "scroll", spacer);
  scroll.tabIndex = 0;
  scroll.setAttribute("aria-label", "Flame graph: arrow keys move, Enter zooms, Escape goes back");
  const path = element("div", "path");
  const back = element("button", "plain", "Reset zoom");
  back.addEventListener("click", () => made.zoomTo(made.view.root));
  bar.append(path, back);
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
      const isWhole = zoom === view.root;
      path.textContent = isWhole ? "Click a box to zoom. Width is CPU time." : `Zoomed into ${zoom.label} · ${percent(zoom.total / view.root.total)}`;
      path.title = isWhole ? "" : zoom.label;
      back.hidden = isWhole;
      onZoom?.(zoom);
    },
  });
  made.setTheme(isDark());
  graphs.push(made);
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
  on.matches = text ? model.marks(text) : null;
  if (text && !on.matches) output.textContent = "not a valid regular expression";
  else if (text && model.ownShares) {
    const [before, now] = model.ownShares.map((selfNs) => model.matched({ selfNs }, on.matches));
    output.append("matched ", element("b", "", percent(before)), " before, ", element("b", "", percent(now)), " now");
  } else if (text) {
    const ns = model.matched(model.weights, on.matches);
    output.append("matched ", element("b", "", percent(ns / (on.view.root.total || 1))), ` · ${duration(ns)}`);
  }
  note({ search: text || null });
}

function legend(model, of, leftOut) {
  const ns = model.selfByKind(model.weights);
  const whole = model.weights.totalNs[0] || 1;
  const made = element("div", "legend", ...KINDS.map(({ name }, kind) => ({ name, kind })).filter(({ kind }) => ns[kind] > 0).map(({ name, kind }) => {
    const colour = element("i");
    colour.dataset.kind = kind;
    colour.style.background = of.swatch(kind);
    const entry = element("span", "", colour, name, element("em", "", percent(ns[kind] / whole)));
    entry.title = "Share of CPU time with such code running";
    return entry;
  }));
  if (leftOut > 0) made.append(element("span", "left-out", `${leftOut.toLocaleString("en")} of the lightest boxes are not shown`));
  return made;
}

/** Letters of a step in the text of a path: enough to tell the callees of a method apart. */
const STEP_LETTERS = 3;

function stepTo(label) {
  let hash = 5381;
  for (let i = 0; i < label.length; i++) hash = (hash * 33 + label.charCodeAt(i)) >>> 0;
  return (hash % 36 ** STEP_LETTERS).toString(36).padStart(STEP_LETTERS, "0");
}

/** A box as a text for the address: the way to it from the root, by what the boxes are called. */
function pathTo(box) {
  let text = "";
  for (let step = box; step.parent; step = step.parent) text = stepTo(step.label) + text;
  return text;
}

/** The box that a text leads to, or the last one on the way that is there. */
function boxAlong(view, text) {
  let box = view.root;
  for (let i = 0; i < text.length; i += STEP_LETTERS) {
    const step = text.slice(i, i + STEP_LETTERS);
    const next = view.children(box).find((child) => stepTo(child.label) === step);
    if (!next) break;
    box = next;
  }
  return box;
}

/** Shows a view, zoomed as the address says; later zooms are kept there. */
function showZoomed(made, view) {
  made.show(view);
  const box = boxAlong(view, at.zoom || "");
  if (box !== view.root) made.zoomTo(box);
}

const keepZoom = (zoom) => note({ zoom: pathTo(zoom) || null });

async function flamePage(fresh, frame) {
  const [answer] = await Promise.all([ask("flamegraph", [...selection(), ["max_nodes", MAX_NODES]]), frame]);
  if (!fresh()) return;
  const content = $("content");
  content.dataset.page = "flame";
  if (answer.total_ns === 0) {
    graph = null;
    content.replaceChildren(nothing("No samples in this selection."));
    return;
  }
  const model = modelOf(answer.tree);
  content.replaceChildren();
  graphs = [];
  const matched = element("output", "matched");
  const bar = element("div", "bar");
  const views = () => (at.callers ? new CallerView(model, model.weights) : new CalleeView(model, model.weights));
  const orient = (icicle) => {
    note({ icicle: icicle ? "1" : null });
    graph.orient(icicle);
  };
  const direct = (callers) => {
    note({ callers: callers ? "1" : null, zoom: null });
    graph.show(views());
  };
  bar.append(
    toggle("icicle", [["Flame", "Root at the bottom (i)"], ["Icicle", "Root at the top (i)"]], at.icicle, orient),
    toggle("reverse", [["Callees", "From thread entry to the running method (r)"], ["Callers", "From the running method to its callers (r)"]], at.callers, direct),
    searchBox("Search a method, or /regex/", (text) => { mark(graph, model, text, matched); graph.redraw(); }),
    matched,
  );
  const made = putGraph(content, bar, (box) => times(box, made.view.root), (zoom) => graph === made && keepZoom(zoom));
  made.icicle = Boolean(at.icicle);
  // What surrounds the graph decides how much room it has, so it is there first.
  content.append(legend(model, made, answer.nodes_left_out));
  const view = views();
  made.view = view;
  mark(made, model, at.search || "", matched);
  showZoomed(made, view);
  graph = made;
}

// ---- Tables ----

/**
 * A table whose columns are [title, className, cell(row), value(row) to sort by or null, hint]. Which one it is
 * sorted by is kept in the address.
 */
function table(columns, rows, onRow, empty) {
  const byDefault = columns.findIndex(([, , , value]) => value);
  let sorted = columns[Number(at.sort)]?.[3] ? Number(at.sort) : byDefault;
  const body = element("tbody");
  const heads = columns.map(([title, className, , value, hint], index) => {
    const head = element("th", `${className}${value ? " sortable" : ""}`, title);
    head.title = hint || (value ? `Sort by ${title.toLowerCase()}` : "");
    if (value) {
      head.tabIndex = 0;
      head.dataset.press = "";
      head.addEventListener("click", () => {
        sorted = index;
        fill();
        // Asked again, for which rows there are may depend on the order.
        go({ sort: index === byDefault ? null : String(index) }, true);
      });
    }
    return head;
  });
  function fill() {
    const value = columns[sorted]?.[3];
    const ordered = value ? [...rows].sort((a, b) => value(b) - value(a)) : rows;
    heads.forEach((head, index) => {
      head.classList.toggle("sorted", index === sorted);
      head.setAttribute("aria-sort", index === sorted ? "descending" : "none");
    });
    body.replaceChildren(...ordered.map((row) => {
      const line = element("tr", "", ...columns.map(([, className, cell]) => cellOf(className, cell(row))));
      if (onRow) {
        line.tabIndex = 0;
        line.dataset.press = "";
        line.addEventListener("click", () => onRow(row));
      }
      return line;
    }));
    if (rows.length === 0) {
      const none = element("td", "none", empty);
      none.colSpan = columns.length;
      body.append(element("tr", "", none));
    }
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

function putTable(page, bar, made, footnote) {
  graph = null;
  graphs = [];
  const content = $("content");
  content.dataset.page = page;
  content.replaceChildren(bar, element("div", "pane", made, footnote ? element("p", "range", footnote) : ""));
}

async function methodsPage(fresh, frame) {
  const [answer] = await Promise.all([ask("methods", [...selection(), ["limit", ROWS_SHOWN], ["order", at.sort === "2" ? "total" : "self"]]), frame]);
  if (!fresh()) return;
  const whole = answer.total_ns || 1;
  const pane = (text) => {
    const rows = answer.methods.filter((row) => row.name.toLowerCase().includes(text.toLowerCase()));
    return table([
      ["Self", "number", (row) => percent(row.self_ns / whole), (row) => row.self_ns, "Share of CPU time in the method itself"],
      ["Self time", "number", (row) => duration(row.self_ns), null],
      ["Total", "number", (row) => percent(row.total_ns / whole), (row) => row.total_ns, "Share of CPU time in the method and all that it called"],
      ["Total time", "number", (row) => duration(row.total_ns), null],
      ["Samples", "number", (row) => row.self_samples.toLocaleString("en"), (row) => row.self_samples, "Samples in the method itself"],
      ["Method: click for its callers and callees", "method", (row) => methodCell(row.name), null],
    ], rows, (row) => go({ tab: "method", method: row.name, sort: null }), text ? `No method contains “${text}”.` : "No samples in this selection.");
  };
  const search = searchBox("Search a method", (text) => {
    note({ search: text || null });
    $("content").querySelector("table").replaceWith(pane(text));
  });
  const footnote = answer.rows_left_out > 0 ? `${answer.rows_left_out.toLocaleString("en")} methods with less CPU time are not shown.` : "";
  putTable("methods", element("div", "bar", search, element("span", "range", `${answer.samples.toLocaleString("en")} samples · ${duration(answer.total_ns)} CPU time`)), pane(at.search || ""), footnote);
}

/** What a virtual thread ran on; nothing for other threads. */
function carriers(row) {
  const names = row.carriers || [];
  const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
  return names.length > 0 ? `virtual #${row.java_id} on ${names.slice(0, 2).join(", ")}${more}` : "";
}

async function threadsPage(fresh, frame) {
  const [answer] = await Promise.all([ask("threads", [...selection(), ["limit", ROWS_SHOWN]]), frame]);
  if (!fresh()) return;
  const whole = answer.total_ns || 1;
  const known = (id) => processes.find((process) => process.process === id);
  const about = (row) => [carriers(row) || (row.tid ? `tid ${row.tid}` : "a group"), known(row.process) ? nameOf(known(row.process)) : row.process].join(" · ");
  const pane = (text) => {
    const rows = answer.threads.filter((row) => row.thread.toLowerCase().includes(text.toLowerCase()));
    return table([
      ["Share", "number lead", (row) => percent(row.cpu_ns / whole), (row) => row.cpu_ns, "Share of the selection's CPU time"],
      ["CPU time", "number", (row) => duration(row.cpu_ns), null],
      ["Kind", "kind", (row) => row.kind, null],
      ["Thread: click to look at it alone", "method", (row) => [row.thread || "(no name)", element("small", "", about(row))], null],
    ], rows, (row) => go({ process: row.process, thread: row.thread, tab: "flame", sort: null, search: null }), text ? `No thread contains “${text}”.` : "No samples in this selection.");
  };
  const search = searchBox("Search a thread", (text) => {
    note({ search: text || null });
    $("content").querySelector("table").replaceWith(pane(text));
  });
  const footnote = answer.rows_left_out > 0 ? `${answer.rows_left_out.toLocaleString("en")} threads with less CPU time are not shown.` : "";
  putTable("threads", element("div", "bar", search, element("span", "range", `${(answer.threads.length + answer.rows_left_out).toLocaleString("en")} threads · ${duration(answer.total_ns)} CPU time`)), pane(at.search || ""), footnote);
}

async function methodPage(fresh, frame) {
  const [known] = await Promise.all([ask("methods", [...selection(), ["limit", ROWS_SHOWN]]), frame]);
  const names = known.methods.map((row) => row.name);
  const method = at.method || names[0] || "";
  const [callers, callees] = method
    ? await Promise.all(["callers", "callees"].map((question) => ask(question, [...selection(), ["method", method], ["max_nodes", "20000"]])))
    : [null, null];
  if (!fresh()) return;
  const list = element("datalist", "", ...names.map((name) => new Option(name)));
  list.id = "names";
  const input = element("input");
  Object.assign(input, { type: "search", value: method, spellcheck: false, placeholder: "Full name of a method" });
  input.setAttribute("list", "names");
  input.addEventListener("change", () => go({ method: input.value.trim() || null }));
  const content = $("content");
  content.dataset.page = "method";
  graph = null;
  graphs = [];
  const time = callees?.tree.total_ns[0] || 0;
  const share = `${duration(time)} in this method and below, ${percent(time / (known.total_ns || 1))} of the selection`;
  content.replaceChildren(element("div", "bar", element("span", "field", "Method"), element("label", "search long", input), list, element("span", "range", time > 0 ? share : "")));
  if (time === 0) {
    content.append(nothing(method ? `No sample in this selection is in “${method}”.` : "No samples in this selection."));
    return;
  }
  const halves = element("div", "halves");
  content.append(halves);
  for (const [title, answer, icicle] of [["Callers: where it was called from, with the time spent in it", callers, false], ["Callees: what it called", callees, true]]) {
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
  const parts = [process ? `${nameOf(process)} (${process.pid})` : "all processes"];
  if (from.thread) parts.push(`thread ${from.thread}`);
  if (from.frame) parts.push(`with ${from.frame}`);
  const moment = (text) => (/^[\d.]+$/.test(text) ? clock(Number(text) * 1e9) : text === "now" ? "now" : `${text.replace("-", "")} ago`);
  parts.push(from.from ? `${moment(from.from)} to ${from.to ? moment(from.to) : "now"}` : "all time");
  return parts.join(" · ");
}

async function comparePage(fresh, frame) {
  const content = $("content");
  const base = baseline();
  const take = element("button", "plain", "Take what is selected as the baseline");
  take.addEventListener("click", takeBaseline);
  const swap = element("button", "plain", "Swap");
  swap.addEventListener("click", () => go(Object.fromEntries(SELECTION.flatMap((name) => [[name, base[name] || null], [`before.${name}`, at[name] || null]]))));
  const isChosen = Object.keys(at).some((name) => name.startsWith("before."));
  if (!isChosen) {
    await frame;
    if (!fresh()) return;
    graph = null;
    graphs = [];
    content.dataset.page = "compare";
    content.replaceChildren(element("div", "empty", element("p", "", "Choose a process or a range, take it as the baseline, then choose what to compare with it."), take));
    return;
  }
  const sides = [...Object.entries(base).map(([name, value]) => [`before.${name}`, value]), ...selection().map(([name, value]) => [`after.${name}`, value])];
  const [answer, rows] = await Promise.all([ask("diff", [...sides, ["max_nodes", MAX_NODES]]), ask("diff/methods", [...sides, ["limit", ROWS_SHOWN]]), frame]);
  if (!fresh()) return;
  const model = modelOfDifference(answer);
  content.replaceChildren();
  content.dataset.page = "compare";
  graphs = [];
  const { before_total_ns: before, after_total_ns: after } = answer.spans;
  const scale = element("span", "scale", "less", element("i"), "more than before");
  const side = (title, what, ns) => element("div", "side", element("b", "", title), element("span", "", `${duration(ns)} CPU time`), ` · ${what}`);
  const head = element("div", "bar", element("div", "sides grow", side("Before", describe(base), before), side("Now", describe(at), after)), scale, swap, take);
  content.append(head);
  if (before === 0 || after === 0) {
    graph = null;
    content.append(nothing(`There are no samples ${before + after === 0 ? "on either side" : before === 0 ? "before" : "now"}: nothing to compare.`));
    return;
  }
  const matched = element("output", "matched");
  const views = () => (at.callers ? new CallerView(model, model.weights) : new CalleeView(model, model.weights));
  const direct = (callers) => {
    note({ callers: callers ? "1" : null, zoom: null });
    graph.show(views());
  };
  const bar = element("div", "bar",
    toggle("reverse", [["Callees", "From thread entry to the running method (r)"], ["Callers", "From the running method to its callers (r): compares methods wherever they were called from"]], at.callers, direct),
    searchBox("Search a method, or /regex/", (text) => { mark(graph, model, text, matched); graph.redraw(); }),
    matched);
  const halves = element("div", "halves");
  const upper = element("section");
  const shareOf = (item, side) => (typeof item === "number" ? model.sides[side][item] : model.ownShares[side][item.own]);
  const sharesOf = (box) => [0, 1].map((side) => box.items.reduce((sum, item) => sum + shareOf(item, side), 0));
  halves.append(upper, element("section", "", element("div", "pane", differenceTable(rows))));
  content.append(halves);
  const made = putGraph(upper, bar, (box) => {
    const shares = sharesOf(box);
    return element("div", "kinds", `before ${percent(shares[0])} · now ${percent(shares[1])} · `, changeOf(shares[1] - shares[0]));
  }, (zoom) => graph === made && keepZoom(zoom));
  made.colour = (box) => {
    // Of a box that is drawn often, once.
    if (box.tint === undefined) {
      const [then, now] = sharesOf(box);
      box.tint = [(now - then) / Math.max(now + then, 1e-9), Math.abs(now - then)];
    }
    return differenceColour(...box.tint);
  };
  made.view = views();
  mark(made, model, at.search || "", matched);
  showZoomed(made, made.view);
  graph = made;
}

function changeOf(change) {
  const text = `${change >= 0 ? "+" : "−"}${(Math.abs(change) * 100).toFixed(1)} points`;
  return element("span", `change ${change > 0.0005 ? "more" : change < -0.0005 ? "less" : ""}`, text);
}

function differenceTable(answer) {
  return table([
    ["Change", "number", (row) => changeOf(row.change), (row) => Math.abs(row.change), "Change of the share of CPU time, in percentage points"],
    ["Before", "number", (row) => percent(row.before_share), (row) => row.before_share, "Share of the CPU time before"],
    ["Now", "number", (row) => percent(row.after_share), (row) => row.after_share, "Share of the CPU time now"],
    ["Time before", "number", (row) => duration(row.before_ns), null],
    ["Time now", "number", (row) => duration(row.after_ns), null],
    ["Method, by self time", "method", (row) => methodCell(row.name), null],
  ], answer.methods, (row) => go({ tab: "method", method: row.name, sort: null }), "Nothing changed.");
}

/** Blue for less, red for more; pale where the difference is too small to matter. */
function differenceColour(relative, absolute) {
  const strength = Math.sqrt(Math.min(1, Math.abs(relative))) * Math.min(1, absolute / 0.01 + 0.15);
  const hue = relative > 0 ? 4 : 214;
  return isDark() ? `hsl(${hue} ${strength * 62}% ${26 + strength * 20}%)` : `hsl(${hue} ${strength * 82}% ${90 - strength * 26}%)`;
}

// ---- Statistics ----

/** What the causes of losses, and the ends of walks, mean for people; others are shown by name. */
const MEANINGS = {
  queue_full: "The thread's queue was full when its timer expired",
  pool_exhausted: "No memory was left for a copy of the stack",
  no_timer: "The thread had no timer: the system's limit of timers was reached",
  not_received: "The agent sent it, but it never arrived here",
  stopping: "The thread ended, or the profiler was stopping",
  bad_context: "The kernel gave no usable registers",
  end_of_stack: "The whole stack was walked",
  end_of_continuation: "The whole stack of a virtual thread was walked",
  end_past_thaw: "A virtual thread's stack down to its root; the newest frames were on their way back from the heap",
  not_java: "A thread without Java code, walked to its end",
  depth_limit: "The stack is deeper than what is walked; callers are missing",
  unreadable: "Memory that the walk needed could not be read; callers are missing",
};
const spaced = (cause) => cause.replaceAll("_", " ");

/** Rows of [title, value, hint]; those without a value are left out. */
function rowsOf(rows) {
  const made = element("dl");
  for (const [title, value, hint, className] of rows) {
    if (value === null || value === undefined) continue;
    const term = element("dt", "", title);
    if (hint) term.title = hint;
    made.append(term, element("dd", className || "", value instanceof Node ? value : String(value)));
  }
  return made;
}

const number = (count) => count.toLocaleString("en");
const microseconds = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(1)} µs`);

/** Median, 99th percentile and largest of a distribution. */
function spread(of, show) {
  return of.count > 0 ? `${show(of.p50)} · ${show(of.p99)} · ${show(of.max)}` : "none yet";
}

function accountBar(parts) {
  const bar = element("div", "account-bar", ...parts.filter(([, ns]) => ns > 0).map(([title, ns, colour]) => {
    const part = element("i");
    part.style.cssText = `flex: ${ns} 0 0; background: ${colour}`;
    part.title = `${title}: ${duration(ns)}`;
    return part;
  }));
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map(([title, ns]) => `${title} ${duration(ns)}`).join(", "));
  return bar;
}

function swatched(title, colour) {
  const swatch = element("i", "swatch");
  swatch.style.background = colour;
  return element("span", "", swatch, title);
}

function card(account) {
  const lost = Object.values(account.lost_ns).reduce((sum, ns) => sum + ns, 0);
  const whole = account.kernel_ns + account.before_timer_ns || 1;
  const parts = [
    ["sampled", account.sampled_ns, "var(--good)", "CPU time that samples stand for"],
    ["lost", lost, "var(--bad)", "CPU time whose samples were lost, by cause below"],
    ["unfinished periods", account.unfinished_ns, "var(--open)", "CPU time since the last expiration of each thread's timer: less than an interval a thread"],
    ["before timers ran", account.before_timer_ns, "var(--before)", "CPU time of threads before they were profiled, the start of the JVM included"],
  ];
  const walks = Object.values(account.stops).reduce((sum, count) => sum + count, 0) || 1;
  // At the end there are none left, which says nothing.
  const timers = account.state === "ended" ? null : account.timers;
  const untimed = account.lost_ns.no_timer || 0;
  const doubt = isDoubtful(account) ? "doubt" : "";
  const section = (title, hint, rows) => {
    const head = element("h4", "", title);
    if (hint) head.append(element("small", "", hint));
    return [head, rowsOf(rows)];
  };
  const causes = Object.entries(account.lost_ns).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  const made = element("section", "card",
    element("h3", "", nameOf(account)),
    element("p", "", `${account.host} · pid ${account.pid} · JDK ${account.jvm} · ${account.state}${account.end ? ` (${spaced(account.end)})` : ""}`),
    element("div", `verdict ${doubt}`, element("b", "", isAccounted(account) ? percent(account.explained) : "–"), isAccounted(account) ? " of CPU time is explained by samples" : " no account of the CPU time has come yet"),
    accountBar(parts),
    rowsOf(parts.map(([title, ns, colour, hint]) => [swatched(title, colour), `${duration(ns)} · ${percent(ns / whole)}`, hint])),
    ...section("Lost, by cause", "", causes.length > 0
      ? causes.map(([cause, ns]) => [spaced(cause), `${duration(ns)} · ${number(account.lost_samples[cause] || 0)} samples`, MEANINGS[cause], "bad"])
      : [["nothing was lost", ""]]),
    ...section("Coverage", "", [
      ["threads without a timer", timers ? null : untimed > 0 ? `${duration(untimed)} lost` : "none", MEANINGS.no_timer, untimed > 0 ? "bad" : ""],
      ["threads with a timer", timers ? `${number(timers.with_timer)} of ${number(timers.threads)}` : null, "At the time of the last statistics; others wait for a turn or are named as lost", timers && timers.with_timer < timers.threads ? "bad" : ""],
      ["timers handed on", account.timers?.turns > 0 ? number(account.timers.turns) : null, "How often a timer passed from one thread to another, for want of timers"],
      ["threads beyond the limit", account.timers?.without_slot > 0 ? number(account.timers.without_slot) : null, "More threads than can be profiled at once", "bad"],
      ["samples of requests", `${number(account.samples)} of ${number(account.requests)}`, "Stacks that arrived here, of those that were captured"],
      ["interval", duration(account.interval_ns), "CPU time of a thread between two samples"],
      ["messages missing", number(account.missing_messages), "Sent by the agent, never received", account.missing_messages > 0 ? "bad" : ""],
      ["samples without names", number(account.unknown_samples), "Their stacks were never described", account.unknown_samples > 0 ? "bad" : ""],
    ]),
    ...section("Why walks ended", "", Object.entries(account.stops).sort((a, b) => b[1] - a[1]).map(([stop, count]) => [spaced(stop), `${number(count)} · ${percent(count / walks)}`, MEANINGS[stop]])),
    ...section("Cost of profiling", "median · 99 % · largest", [
      ["signal handler, cycles", spread(account.handler_cycles, number), "Time stamp counter cycles on the profiled thread for each sample"],
      ["walk of a stack", spread(account.walk_ns, microseconds), "In the sampler's own thread"],
      ["drain of all queues", spread(account.drain_ns, microseconds), "In the sampler's own thread"],
      ["sampler thread", `${duration(account.sampler_cpu_ns)} · ${percent(account.sampler_cpu_ns / (account.process_cpu_ns || 1))} of the process`, "CPU time of the agent's own thread"],
    ]),
    ...section("Memory of the agent", "", [
      ["queues", bytes(account.queue_bytes), "Request queues of all threads"],
      ["queues grown", number(account.queue_grown), "How often a queue was given a larger ring"],
      ["most found in a queue", number(account.queue_high_water), "Requests at one drain"],
      ["snapshot pool", bytes(account.pool_bytes), "Memory for copies of stacks"],
      ["pool exhausted", number(account.pool_exhausted), "Samples that found no memory of their size", account.pool_exhausted > 0 ? "bad" : ""],
    ]));
  made.title = account.command;
  return made;
}

async function statisticsPage(fresh, frame) {
  const [answer] = await Promise.all([ask("statistics", selection().filter(([name]) => name === "process")), frame]);
  if (!fresh()) return;
  graph = null;
  graphs = [];
  const content = $("content");
  content.dataset.page = "statistics";
  const cards = answer.processes.map(card);
  content.replaceChildren(cards.length > 0
    ? element("div", "pane", element("div", "cards", ...cards))
    : nothing("No process matches."));
}

const PAGES = { flame: flamePage, methods: methodsPage, threads: threadsPage, method: methodPage, compare: comparePage, statistics: statisticsPage };
