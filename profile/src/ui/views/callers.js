// The sandwich: callers of one method above, its callees below, its lines beside them.

/** Most nodes of each half. */
const MOST_IN_HALF = "20000";
/** Least height of a half, in rows. */
const LEAST_ROWS = 5;

async function callersView(isCurrent, surroundings) {
  const [known] = await Promise.all([ask("methods", [...selection(), ["limit", ROWS_SHOWN]]), surroundings]);
  const names = known.methods.map((row) => row.name);
  const method = state.method || names[0] || "";
  const [callers, callees, lines] = method
    ? await Promise.all([...["callers", "callees"].map((question) => ask(question, [...selection(), ["method", method], ["max_nodes", MOST_IN_HALF]])), linesOf(method)])
    : [null, null, null];
  if (!isCurrent()) return;
  const time = callees?.tree.total_ns[0] || 0;
  putContent("method", methodBar(method, names, time, known.total_ns));
  if (time === 0) {
    $("content").append(nothing(method ? `No sample in this selection is in “${method}”.` : "No samples in this selection."));
    return;
  }
  const halves = element("div", "halves");
  $("content").append(element("div", "sandwich", halves, linesPane(lines)));
  const parts = [
    putHalf(halves, method, callers, { title: "Callers", hint: "A box has the CPU time spent in the method when called from there" }),
    putHalf(halves, method, callees, { title: "Callees", hint: "", isIcicle: true }),
  ];
  // Each half is as high as its stacks need, and both fill the height.
  halves.style.gridTemplateRows = parts.map((part) => `minmax(${(LEAST_ROWS + 2) * ROW}px, ${Math.max(part.rows.length, LEAST_ROWS)}fr)`).join(" ");
  graph = parts[1];
  searchIn((text) => {
    for (const part of parts) {
      part.matches = text ? part.view.model.marks(text) : null;
      part.redraw();
    }
    keepInAddress({ search: text || null });
  });
}

/** The name of the method, to be changed; its CPU time; and the way to its boxes in the flame graph. */
function methodBar(method, names, time, whole) {
  const list = element("datalist", "", ...names.map((name) => new Option(name)));
  list.id = "names";
  const input = element("input");
  Object.assign(input, { type: "search", value: method, spellcheck: false, placeholder: "Full name of a method" });
  input.setAttribute("list", "names");
  input.addEventListener("change", () => go({ method: input.value.trim() || null }));
  const share = time > 0 ? `${duration(time)} in this method and its callees, ${percent(time / (whole || 1))} of the selection` : "";
  const boxes = button("plain", "In the flame graph", () => go({ tab: "flame", search: exactly(method), match: "1" }));
  boxes.title = "Show the boxes of this method";
  return element("div", "bar",
    element("span", "field", "Method"), element("label", "search long", input), list,
    toggle("roots", FOLDING, state.roots, (isWhole) => go({ roots: isWhole ? "1" : null })),
    element("span", "range", share), time > 0 ? boxes : "");
}

/** Puts the callers or the callees into `halves`, below a line with their title. */
function putHalf(halves, method, answer, { title, hint, isIcicle = false }) {
  const head = element("h3", "", title);
  head.title = hint;
  const half = element("section");
  halves.append(half);
  const model = callTreeOf(answer);
  model.names[model.name[0]] = method;
  const part = putGraph(half, element("div", "bar", head), (box) => [timesOf(box, part.view.root), detailsOf(box)]);
  part.icicle = isIcicle;
  const view = new CalleeView(model, model.weights, false, !state.roots && !isIcicle);
  view.root.label = method;
  part.show(view);
  return part;
}
