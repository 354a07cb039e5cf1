// The flame graph and its pane, which the other views with call trees use as well.

/** Buttons that fold and unfold what few readers look for. */
const FOLDING = [["Folded", "Without the functions below the first method of a thread, and with the JIT compiler by phase (o)"], ["Unfolded", "From the first function of the thread, and with every function of the JIT compiler (o)"]];

/** Most nodes of an answer. Nodes beyond this limit are a small part of a pixel each. */
const MAX_NODES = 150_000;

/** A call tree with the weights of its one selection, from an answer. */
function callTreeOf({ tree }) {
  const { self_ns: self, total_ns: total } = tree;
  return source.treeOf(tree).weighted({ self: (node) => self[node], total: (node) => total[node], selfNs: self, totalNs: total });
}

/**
 * Puts a graph below its bar into `target`. `tipOf(box)` adds content to the tooltip of a box; `onZoom(box)` is
 * called after a zoom.
 */
function putGraph(target, bar, tipOf, onZoom) {
  const canvas = element("canvas", "boxes");
  const spacer = element("div", "spacer", canvas);
  const scroll = element("div", "scroll", spacer);
  scroll.tabIndex = 0;
  scroll.setAttribute("aria-label", "Flame graph: arrow keys move, Enter zooms, Escape resets the zoom");
  const path = element("div", "path");
  const callers = button("plain", "Sandwich", () => openSandwich(made));
  callers.title = "Show callers and callees of this method (m)";
  const reset = button("plain", "Reset zoom", () => made.zoomTo(made.view.root));
  bar.append(element("div", "where", path, callers, reset));
  target.append(bar, element("section", "graph", scroll));
  const made = new Graph(canvas, scroll, spacer, {
    hover: (box, event) => (box ? showTip(event, element("div", "what", box.label), ...tipOf(box)) : hideTip()),
    changed: () => {
      const { zoom, view, cursor } = made;
      const at = cursor || zoom;
      const where = cursor ? "At" : "Zoomed into";
      path.textContent = at === view.root ? "Click a box to zoom" : `${where} ${at.label} · ${percent(at.total / view.root.total)}`;
      path.title = at === view.root ? "" : at.label;
      callers.hidden = methodAt(made) === null;
      reset.hidden = zoom === view.root;
      onZoom?.(zoom);
    },
  });
  made.setTheme(isDark());
  graphs.push(made);
  return made;
}

/** The method of the box at the cursor, or of the one that is zoomed into; null for one that is no method. */
function methodAt(on) {
  const { name, kind } = on.cursor || on.zoom;
  return name < 0 || kind === MARKER ? null : on.view.model.names[name];
}

/** Shows callers and callees of the method at the cursor. */
function openSandwich(on) {
  const method = methodAt(on);
  if (method !== null) go({ tab: "method", method, search: null, match: null });
}

/** CPU time of a box as content of its tooltip. */
function timesOf(box, root) {
  const list = element("dl");
  for (const [title, ns] of [["Total", box.total], ["Self", box.self]]) {
    list.append(element("dt", "", title), element("dd", "", duration(ns)), element("dd", "", percent(ns / (root.total || 1))), element("dt"));
  }
  return list;
}

/** CPU time of a box by kind of its frames, as content of its tooltip. */
function kindsOf(box, on) {
  if (box.name < 0) return "";
  const ns = on.view.kinds(box);
  const entries = KINDS.map(({ name }, kind) => (ns[kind] > 0 ? swatched(`${name} ${percent(ns[kind] / box.total)}`, on.swatch(kind)) : ""));
  return element("div", "kinds", ...entries);
}

/** Makes the graph follow the search, from the match that the address names. */
function searchInGraph(on, model, output) {
  on.steps = new Matches(on, (shown) => keepInAddress({ match: shown || null }));
  searchIn((text) => {
    if (text !== (state.search || "")) keepInAddress({ search: text || null, match: null });
    on.steps.clear();
    applySearch(on, model, text, output);
    on.redraw();
  });
}

/** Marks the names that `text` finds, and shows the CPU time of samples with such a name. */
function applySearch(on, model, text, output) {
  output.replaceChildren();
  on.matches = text ? model.marks(text) : null;
  if (text && !on.matches) output.textContent = "not a valid regular expression";
  else if (text && model.ownShares) {
    const [before, now] = model.ownShares.map((selfNs) => model.matched({ selfNs }, on.matches));
    output.append("matched ", element("b", "", percent(before)), " before, ", element("b", "", percent(now)), " now");
  } else if (text) {
    const ns = model.matched(model.weights, on.matches);
    output.append("matched ", element("b", "", percent(ns / (model.weights.totalNs[0] || 1))), ` · ${duration(ns)}`);
    // A restriction to frames respects case, and finds parts of names.
    const part = exactName(text) ?? text;
    const isSame = model.names.every((name, index) => name.includes(part) === Boolean(on.matches[index]));
    if (ns > 0 && isSame && state.frame !== part) output.append(button("quiet", "Only these", () => go({ frame: part, search: null, match: null })));
  }
  if (on.matches) {
    output.append(on.steps.element);
    on.steps.write();
  }
  for (const row of document.querySelectorAll("aside tbody tr")) row.classList.toggle("chosen", row.dataset.method === exactName(text));
}

/** Marks the boxes of one method and shows the heaviest; a second call for it clears the search. */
function showMethod(on, name) {
  const text = exactly(name);
  if ($("search").value === text) return searchFor("");
  searchFor(text);
  on.steps.show(1);
}

/** Kinds of code with their share of CPU time, and what the answer leaves out; a click selects samples of that kind. */
function legend(model, on, answer) {
  const ns = model.selfByKind(model.weights);
  const whole = model.weights.totalNs[0] || 1;
  const entries = KINDS.map(({ id, name, meaning }, kind) => {
    if (!(ns[kind] > 0)) return "";
    const entry = swatched(name, on.swatch(kind), "");
    entry.firstChild.dataset.kind = kind;
    entry.append(element("em", "", percent(ns[kind] / whole)));
    entry.title = `${meaning}. Click to show only samples in this code.`;
    onPress(entry, () => go({ kind: state.kind === id ? null : id }));
    return entry;
  });
  const made = element("div", "legend", ...entries);
  const leftOut = answer.nodes_left_out;
  const share = percent(answer.left_out_ns / whole);
  if (leftOut > 0) made.append(element("span", "left-out", `${number(leftOut)} of the lightest boxes, with ${share} of the time, are not shown`));
  return made;
}

// ---- Zoom in the address ----

/** Letters of one step of a path: enough to distinguish the callees of a method. */
const STEP_LETTERS = 3;

function stepTo(label) {
  let hash = 5381;
  for (let i = 0; i < label.length; i++) hash = (hash * 33 + label.charCodeAt(i)) >>> 0;
  return (hash % 36 ** STEP_LETTERS).toString(36).padStart(STEP_LETTERS, "0");
}

/** The path from the root to a box as text for the address: hashes of the labels on the way. */
function pathTo(box) {
  let text = "";
  for (let step = box; step.parent; step = step.parent) text = stepTo(step.label) + text;
  return text;
}

/** The box at the end of a path, or the last one on the way that the view has. */
function boxAlong(view, text) {
  let box = view.root;
  for (let i = 0; i < text.length; i += STEP_LETTERS) {
    const step = text.slice(i, i + STEP_LETTERS);
    unfold(box);
    const next = view.children(box).find((child) => stepTo(child.label) === step);
    if (!next) break;
    box = next;
  }
  return box;
}

/** A box as text for the address: in a view of time by its time, else by its path. */
const textOf = (view, box) => (view.isInTime ? view.textOf(box) : pathTo(box));

/** The box that a text names, or the last one above it that the view has. */
const boxAt = (view, text) => (view.isInTime ? view.boxAt(text) : boxAlong(view, text));

/** Shows a view, zoomed as the address says. */
function showZoomed(on, view) {
  on.show(view);
  const box = boxAt(view, state.zoom || "");
  if (box !== view.root) on.zoomTo(box);
  if (on.matches && state.match) on.steps.show(Number(state.match));
}

/** Keeps the zoom of the present graph in the address. A box in time that grows keeps its text. */
function keepZoom(on, zoom) {
  if (graph !== on || (zoom !== on.view.root && boxAt(on.view, state.zoom || "") === zoom)) return;
  keepInAddress({ zoom: textOf(on.view, zoom) || null });
}

// ---- The view ----

/** Shows another view of the same samples, with the matches of the search in it. */
function showAnew(on, view) {
  on.show(view);
  on.steps.clear();
  if (on.matches) on.steps.write();
}

/** Buttons that switch between callees and callers. */
function directionToggle(viewOf, hint) {
  const titles = [["Callees", "From the thread entry to the running method (r)"], ["Callers", hint]];
  return toggle("reverse", titles, state.callers, (isCallers) => {
    keepInAddress({ callers: isCallers ? "1" : null, zoom: null, match: null });
    showAnew(graph, viewOf());
  });
}

/** The hottest methods beside the graph; a click shows the boxes of a method. */
function hotMethods(model, onChoose) {
  const whole = model.weights.totalNs[0] || 1;
  const rows = model.methods(model.weights).filter(({ name, self }) => self > 0 || !model.names[name].startsWith("["));
  const list = element("tbody");
  const fill = (order) => {
    const sorted = rows.sort((a, b) => b[order] - a[order] || b.total - a.total).slice(0, 300);
    list.replaceChildren(...sorted.map((row) => {
      const cells = [["self", row.self], ["total", row.total]].map(([column, ns]) => {
        const cell = element("td", `number${column === order ? " lead" : ""}`, percent(ns / whole));
        cell.style.setProperty("--share", `${(ns / (sorted[0][order] || 1)) * 100}%`);
        cell.title = duration(ns);
        return cell;
      });
      const line = element("tr", "", ...cells, cellOf("method", methodCell(model.names[row.name])));
      line.dataset.method = model.names[row.name];
      line.title = `${model.names[row.name]}: click to show its boxes, again to clear`;
      onPress(line, () => onChoose(model.names[row.name]));
      return line;
    }));
  };
  const order = element("div", "segments small");
  const choose = (by) => {
    segments(order, [["self", "Self"], ["total", "Total"]], by, choose);
    keepInAddress({ hot: by === "total" ? by : null });
    fill(by);
  };
  choose(state.hot || "self");
  const head = element("tr", "", element("th", "number", "Self"), element("th", "number", "Total"), element("th", "", "Method"));
  return element("aside", "", element("div", "aside-head", element("h2", "", "Hot methods"), order), element("div", "table-scroll", element("table", "", element("thead", "", head), list)));
}

/** Buttons that select threads that ran or waited, in a profile of wall time. */
function stateSegments() {
  if (!processes.some(({ mode }) => mode === "wall")) return "";
  const made = element("div", "segments");
  segments(made, [["", "All"], ["running", "Running"], ["waiting", "Waiting"]], state.state || "", (chosen) => go({ state: chosen || null }));
  return made;
}

const isNarrow = () => window.innerWidth <= 600;

/** Whether the root is at the top: as chosen, else on narrow screens, where the bottom is out of sight. */
const isIcicle = () => (state.icicle ? state.icicle === "1" : isNarrow());

async function flameView(isCurrent, surroundings) {
  const split = state.split && source.isEmbedded ? [["by", "thread"]] : [];
  const [answer] = await Promise.all([ask("flamegraph", [...selection(), ...split, ["max_nodes", MAX_NODES]]), surroundings]);
  if (!isCurrent()) return;
  if (answer.total_ns === 0) return putContent("flame", nothing("No samples in this selection."));
  putContent("flame");
  const model = callTreeOf(answer);
  const viewOf = () => (state.callers ? new CallerView(model, model.weights, split.length > 0, !state.roots) : new CalleeView(model, model.weights, !state.roots));
  const matched = element("output", "matched");
  const bar = element("div", "bar",
    toggle("icicle", [["Flame", "Root at the bottom (i)"], ["Icicle", "Root at the top (i)"]], isIcicle(), (isChosen) => {
      keepInAddress({ icicle: isChosen === isNarrow() ? null : isChosen ? "1" : "0" });
      graph.orient(isChosen);
    }),
    directionToggle(viewOf, "From the running method to its callers (r)"),
    toggle("roots", FOLDING, state.roots, (isWhole) => {
      keepInAddress({ roots: isWhole ? "1" : null, zoom: null, match: null });
      showAnew(graph, viewOf());
    }),
    source.isEmbedded ? toggle("split", [["Merged", "All threads together (s)"], ["By thread", "Each thread apart (s)"]], state.split, (isSplit) => go({ split: isSplit ? "1" : null })) : "",
    stateSegments(), matched);
  const main = element("div", "main");
  const side = hotMethods(model, (name) => showMethod(made, name));
  const made = putGraph(main, bar, (at) => [timesOf(at, made.view.root), kindsOf(at, made), detailsOf(at)], (zoom) => keepZoom(made, zoom));
  made.icicle = isIcicle();
  // The elements around the graph decide its size, so they come first.
  main.append(legend(model, made, answer));
  $("content").append(element("div", "with-aside", main, side));
  made.view = viewOf();
  searchInGraph(made, model, matched);
  showZoomed(made, made.view);
  graph = made;
}
