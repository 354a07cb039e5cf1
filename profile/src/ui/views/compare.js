// Two selections compared: in one flame graph, and method by method.

/** Both sides of a comparison in one call tree. The width of a box is the mean of its shares of both sides. */
function callTreeOfDifference({ tree, spans }) {
  const model = source.treeOf(tree);
  const whole = [spans.before_total_ns || 1, spans.after_total_ns || 1];
  const shares = [tree.before_ns, tree.after_ns].map((side, which) => side.map((ns) => ns / whole[which]));
  const ownShares = shares.map((side) => {
    const own = Float64Array.from(side);
    for (let node = 1; node < model.count; node++) own[model.parent[node]] -= side[node];
    return own;
  });
  // Differences of rounded numbers leave a remainder, which is not CPU time.
  const selfNs = ownShares[0].map((share, node) => (share + ownShares[1][node]) / 2).map((share) => (share > 1e-9 ? share : 0));
  const weights = { self: () => 0, total: (node) => (shares[0][node] + shares[1][node]) / 2, selfNs };
  return model.weighted(weights, { shares, wholeNs: whole, ownShares });
}

/** Whether the address names the side before. */
const hasBaseline = () => Object.keys(state).some((name) => name.startsWith("before."));

function baselineOf() {
  return Object.fromEntries(SELECTION.filter((name) => state[`before.${name}`]).map((name) => [name, state[`before.${name}`]]));
}

/** A selection in words. */
function describe(from) {
  const process = processes.find((known) => known.process === from.process);
  const isOnly = processes.length === 1;
  const parts = isOnly ? [] : [process ? `${nameOf(process)} (${process.pid})` : from.process ? `process ${from.process}` : "all processes"];
  if (isOnly && !from.thread && !from.thread_kind) parts.push("all threads");
  if (from.label) parts.push(from.label);
  if (from.thread) parts.push(`thread ${from.thread}`);
  if (from.thread_kind) parts.push(THREAD_KINDS.find(([kind]) => kind === from.thread_kind)?.[1] || from.thread_kind);
  if (from.frame) parts.push(`with ${from.frame}`);
  if (from.include) parts.push(`with ${from.include}`);
  if (from.exclude) parts.push(`without ${from.exclude}`);
  if (from.kind) parts.push(`${KINDS.find(({ id }) => id === from.kind)?.name || from.kind} code`);
  const moment = (text) => (/^[\d.]+$/.test(text) ? clock(Number(text) * 1e9) : text === "now" ? "now" : `${text.replace("-", "")} ago`);
  const [begin, end] = [from.from ? moment(from.from) : "", from.to ? moment(from.to) : "now"];
  // A date is not repeated, and left out if the timeline has no other.
  const days = [timeline.data?.from_ns, timeline.data?.to_ns].map((ns) => clock(ns || 0).slice(0, 11));
  const isOneDay = begin.length > 10 && begin.slice(0, 11) === end.slice(0, 11);
  const isThatDay = days.every((day) => begin.startsWith(day));
  parts.push(begin ? `${isThatDay ? begin.slice(11) : begin} to ${isOneDay ? end.slice(11) : end}` : "all time");
  return parts.join(" · ");
}

async function compareView(isCurrent, surroundings) {
  const baseline = baselineOf();
  const take = button("plain", "Make the selection the baseline", takeBaseline);
  if (!hasBaseline()) {
    await surroundings;
    if (!isCurrent()) return;
    const what = state.rows === "thread" ? "a thread" : "a process";
    const times = "Compare two times: drag over the timeline, first over the time before, then over the time now.";
    const rows = `Or compare any two selections: click the name of ${what} beside the timeline or restrict the search, press the button, then choose the other one.`;
    return putContent("compare", element("div", "empty", element("p", "", times), element("p", "", rows), take));
  }
  const swap = button("plain", "Swap", () => go(Object.fromEntries(SELECTION.flatMap((name) => [[name, baseline[name] || null], [`before.${name}`, state[name] || null]]))));
  const clear = button("plain", "Clear", () => go(Object.fromEntries(SELECTION.map((name) => [`before.${name}`, null]))));
  clear.title = "Forget the baseline and choose both sides again";
  if (source.usualTime && !baseline.from) baseline.from = source.usualTime;
  const sides = [...Object.entries(baseline).map(([name, value]) => [`before.${name}`, value]), ...selection().map(([name, value]) => [`after.${name}`, value])];
  const [answer, rows] = await Promise.all([ask("diff", [...sides, ["max_nodes", MAX_NODES]]), ask("diff/methods", [...sides, ["limit", ROWS_SHOWN]]), surroundings]);
  if (!isCurrent()) return;
  shownSpans = { "before.": answer.spans.before, "": answer.spans.after };
  const { before_total_ns: before, after_total_ns: after } = answer.spans;
  const side = (title, what, ns) => element("div", "side", element("b", "", title), element("span", "", `${duration(ns)} ${timeName()}`), ` · ${what}`);
  const scale = element("span", "scale", "less", element("i"), "more than before");
  putContent("compare", element("div", "bar", element("div", "sides grow", side("Before", describe(baseline), before), side("Now", describe(state), after)), scale, swap, take, clear));
  if (before === 0 || after === 0) {
    const where = before + after === 0 ? "on either side" : before === 0 ? "before" : "now";
    $("content").append(nothing(`There are no samples ${where}: nothing to compare.`));
    return;
  }
  const upper = element("section");
  $("content").append(element("div", "halves", upper, element("section", "", element("div", "pane", differenceTable(rows, [before, after])))));
  graph = putDifference(upper, callTreeOfDifference(answer));
}

/** Puts the flame graph of both sides into `target`. */
function putDifference(target, model) {
  const viewOf = () => (state.callers ? new CallerView(model, model.weights, false, true) : new CalleeView(model, model.weights, true));
  const matched = element("output", "matched");
  const bar = element("div", "bar",
    directionToggle(viewOf, "From the running method to its callers (r): compares methods wherever they were called from"),
    matched);
  const shareOf = (item, side) => (typeof item === "number" ? model.shares[side][item] : model.ownShares[side][item.own]);
  const sharesOf = (box) => [0, 1].map((side) => total(box.items.map((item) => shareOf(item, side))));
  const made = putGraph(target, bar, (box) => {
    const [before, now] = sharesOf(box);
    const error = chanceOf([before, now], model.wholeNs);
    return [element("div", "kinds", `before ${percent(before)} · now ${percent(now)} · `, changeText(now - before, error))];
  }, (zoom) => keepZoom(made, zoom));
  made.colour = (box) => {
    // A box is drawn often; its colour is computed once.
    if (box.change === undefined) {
      const [before, now] = sharesOf(box);
      const isChance = Math.abs(now - before) <= chanceOf([before, now], model.wholeNs);
      box.change = isChance ? [0, 0] : [(now - before) / Math.max(now + before, 1e-9), Math.abs(now - before)];
    }
    return differenceColour(...box.change);
  };
  made.view = viewOf();
  searchInGraph(made, model, matched);
  showZoomed(made, made.view);
  return made;
}

/** A change of a share; grey if it is within `error`. */
function changeText(change, error = 0) {
  const text = `${change >= 0 ? "+" : "−"}${(Math.abs(change) * 100).toFixed(1)} points`;
  const isChance = Math.abs(change) <= Math.max(error, 0.0005);
  const made = element("span", `change ${isChance ? "chance" : change > 0 ? "more" : "less"}`, text);
  if (isChance && error > 0) made.title = "Within the error of sampling";
  return made;
}

/** Returns the statistical error of a change of a share: two standard errors of the number of samples. */
function chanceOf([before, now], [beforeNs, nowNs]) {
  // Nanoseconds of a sample, on average.
  const each = total(processes.map((process) => process.sampled_ns)) / (total(processes.map((process) => process.samples)) || 1) || 1e7;
  const variance = (share, ns) => (share * (1 - share)) / Math.max(ns / each, 1);
  return 2 * Math.sqrt(variance(before, beforeNs) + variance(now, nowNs));
}

function differenceTable(answer, wholeNs) {
  return table([
    ["Change", "number", (row) => changeText(row.change, chanceOf([row.before_share, row.after_share], wholeNs)), (row) => Math.abs(row.change), "Change of the share of CPU time, in percentage points"],
    ["Before", "number", (row) => percent(row.before_share), (row) => row.before_share, "Share of the CPU time before"],
    ["Now", "number", (row) => percent(row.after_share), (row) => row.after_share, "Share of the CPU time now"],
    ["Time before", "number wide", (row) => duration(row.before_ns), null],
    ["Time now", "number wide", (row) => duration(row.after_ns), null],
    ["Method, by self time", "method", (row) => methodCell(row.name), null],
  ], answer.methods, (row) => go({ tab: "method", method: row.name, sort: null }), "Nothing changed.");
}

/** Blue for less, red for more; pale for small differences. */
function differenceColour(relative, absolute) {
  const strength = Math.sqrt(Math.min(1, Math.abs(relative))) * Math.min(1, absolute / 0.01 + 0.15);
  const hue = relative > 0 ? 4 : 214;
  return isDark() ? `hsl(${hue} ${strength * 62}% ${26 + strength * 20}%)` : `hsl(${hue} ${strength * 82}% ${90 - strength * 26}%)`;
}
