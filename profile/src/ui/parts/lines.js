// Lines of a method: in tooltips, and beside its source text.

/** Milliseconds that the mouse rests on a box before its lines are requested. */
const LINES_AFTER = 200;
/** Answers by method, of the selection that `of` names. */
const knownLines = { of: "", answers: new Map() };

/** The lines of a method in the selection; asked for once. */
function linesOf(method) {
  const of = JSON.stringify(selection());
  if (knownLines.of !== of) Object.assign(knownLines, { of, answers: new Map() });
  const { answers } = knownLines;
  if (!answers.has(method)) {
    const answer = ask("lines", [...selection(), ["method", method]]);
    answers.set(method, answer);
    // A cancelled answer is requested again.
    answer.catch(() => answers.delete(method));
  }
  return answers.get(method);
}

/** Class, signature, file and hottest lines of a method as content of its tooltip; they arrive later. */
function detailsOf(box) {
  const made = element("div", "details");
  clearTimeout(detailsOf.timer);
  if (box.name < 0) return made;
  detailsOf.timer = setTimeout(async () => {
    const answer = await linesOf(box.label).catch(() => null);
    // The mouse may have moved on.
    if (!answer?.method.class || !made.isConnected) return;
    const { method, total_ns: whole } = answer;
    const signatures = method.signatures || [];
    const file = method.file?.split("/").at(-1);
    const known = [...method.lines].filter(({ line }) => line > 0).sort((a, b) => b.self_ns - a.self_ns || b.total_ns - a.total_ns);
    made.append(
      element("div", "", `class ${method.class}`),
      ...signatures.slice(0, 3).map((text) => element("div", "", readableSignature(text))),
      signatures.length > 3 ? element("div", "", `and ${signatures.length - 3} more with this name`) : "",
      file && known.length === 0 ? element("div", "", file) : "",
      ...known.slice(0, 3).map(({ line, self_ns, total_ns }) => element("div", "", element("b", "", `${file || "line"}:${line}`), ` ${percent(total_ns / (whole || 1))} · self ${percent(self_ns / (whole || 1))}`)),
    );
    placeTip(placeTip.last);
  }, LINES_AFTER);
  return made;
}

/** A descriptor such as `(Ljava/lang/String;[I)V` as `(String, int[]) void`. */
function readableSignature(descriptor) {
  const primitive = { B: "byte", C: "char", D: "double", F: "float", I: "int", J: "long", S: "short", Z: "boolean", V: "void" };
  const [, parameters, result] = /^\((.*)\)(.+)$/.exec(descriptor) || [];
  if (parameters === undefined) return descriptor;
  const typeOf = (text) => {
    const depth = text.lastIndexOf("[") + 1;
    const type = text.slice(depth);
    return (primitive[type] || type.slice(1, -1).split("/").at(-1)) + "[]".repeat(depth);
  };
  return `(${(parameters.match(/\[*(L[^;]*;|.)/g) || []).map(typeOf).join(", ")}) ${typeOf(result)}`;
}

/** The lines of a method, beside its source text where the collector has it; empty for code without lines. */
function linesPane({ method, total_ns: whole }) {
  const costs = new Map(method.lines.filter(({ line }) => line > 0).map((cost) => [cost.line, cost]));
  if (costs.size === 0) return "";
  const known = (method.text || []).map(({ line }) => line);
  const rows = [
    ...[...costs.keys()].filter((line) => !known.includes(line)).map((line) => ({ line, text: "" })),
    ...(method.text || []),
  ];
  const most = Math.max(...[...costs.values()].map(({ total_ns }) => total_ns));
  const body = element("tbody", "", ...rows.map(({ line, text }) => {
    const cost = costs.get(line);
    const cells = ["self_ns", "total_ns"].map((name) => {
      const cell = element("td", "number", cost?.[name] > 0 ? percent(cost[name] / (whole || 1)) : "");
      if (cost) cell.title = duration(cost[name]);
      return cell;
    });
    const row = element("tr", cost ? "hot" : "", ...cells, element("td", "number line", String(line)), element("td", "source", text));
    if (cost) row.style.setProperty("--share", `${(cost.total_ns / most) * 100}%`);
    return row;
  }));
  const head = element("tr", "", ...["Self", "Total", "Line"].map((title) => element("th", "number", title)), element("th", "", method.file || ""));
  const hint = method.text?.length > 0 ? "" : element("p", "range", source.isEmbedded
    ? "Lines of all samples in this page."
    : "Start the collector with --source-path (a folder, .jar or .zip) to see the text of the lines.");
  return element("section", "lines", element("h3", "", "Lines"), element("div", "table-scroll", element("table", "", element("thead", "", head), body), hint));
}
