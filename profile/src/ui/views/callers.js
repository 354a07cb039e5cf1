// One method: its callers above, its callees below, its lines beside them.

async function callersView(isCurrent, surroundings) {
  const [known] = await Promise.all([ask("methods", [...selection(), ["limit", ROWS_SHOWN]]), surroundings]);
  const names = known.methods.map((row) => row.name);
  const method = state.method || names[0] || "";
  const [callers, callees, lines] = method
    ? await Promise.all([...["callers", "callees"].map((question) => ask(question, [...selection(), ["method", method], ["max_nodes", "20000"]])), linesOf(method)])
    : [null, null, null];
  if (!isCurrent()) return;
  const list = element("datalist", "", ...names.map((name) => new Option(name)));
  list.id = "names";
  const input = element("input");
  Object.assign(input, { type: "search", value: method, spellcheck: false, placeholder: "Full name of a method" });
  input.setAttribute("list", "names");
  input.addEventListener("change", () => go({ method: input.value.trim() || null }));
  const time = callees?.tree.total_ns[0] || 0;
  const share = time > 0 ? `${duration(time)} in this method and its callees, ${percent(time / (known.total_ns || 1))} of the selection` : "";
  putContent("method", element("div", "bar",
    element("span", "field", "Method"), element("label", "search long", input), list,
    toggle("roots", [["Folded", "Without the functions below the first method of a thread (o)"], ["Roots", "From the first function of the thread (o)"]], state.roots, (isWhole) => go({ roots: isWhole ? "1" : null })),
    element("span", "range", share)));
  if (time === 0) {
    $("content").append(nothing(method ? `No sample in this selection is in “${method}”.` : "No samples in this selection."));
    return;
  }
  const halves = element("div", "halves");
  $("content").append(element("div", "sandwich", halves, linesPane(lines)));
  const made = [];
  for (const [title, answer, isIcicle] of [["Callers, with the CPU time spent in the method when called from there", callers, false], ["Callees", callees, true]]) {
    const half = element("section", "", element("h3", "", title));
    halves.append(half);
    const model = callTreeOf(answer);
    model.names[model.name[0]] = method;
    const part = putGraph(half, element("div", "bar"), (box) => [timesOf(box, part.view.root), detailsOf(box)]);
    part.icicle = isIcicle;
    const view = new CalleeView(model, model.weights, false, !state.roots && !isIcicle);
    view.root.label = method;
    part.show(view);
    made.push([part, model]);
    graph = part;
  }
  searchIn((text) => {
    for (const [part, model] of made) {
      part.matches = text ? model.marks(text) : null;
      part.redraw();
    }
    keepInAddress({ search: text || null });
  });
}
