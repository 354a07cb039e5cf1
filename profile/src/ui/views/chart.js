// The flame chart: the stacks of one thread in the order of time.

/** Times written above the chart, at equal distances from its begin to its end. */
const chartTimes = () => (isNarrow() ? 3 : 6);

/** The samples of a thread in an answer, as rows of a chart. */
function rowsOfThread(answer, chosen) {
  const isChosen = (thread) => thread.process === chosen.process && thread.thread === chosen.thread && thread.tid === chosen.tid;
  const index = answer.threads.findIndex(isChosen);
  return answer.rows.filter(([, thread]) => thread === index).map(([node, , bucket, ns]) => ({ node, bucket, ns }));
}

/** The time of a process, unless a range is chosen: the shorter a time is, the finer are its buckets. */
function lifeOf(id) {
  const process = processes.find((known) => known.process === id);
  const isOpen = !source.isEmbedded && !state.from && !state.to;
  return process && isOpen ? [["from", seconds(process.first_ns)], ["to", seconds(process.last_ns + 1e9)]] : [];
}

async function chartView(isCurrent, surroundings) {
  const [known] = await Promise.all([ask("threads", [...selection(), ["limit", ROWS_SHOWN]]), surroundings]);
  const [chosen] = known.threads;
  if (!isCurrent()) return;
  if (!chosen) return putContent("chart", nothing("No samples in this selection."));
  const others = selection().filter(([name]) => name !== "thread" && name !== "process");
  const thread = [["process", chosen.process], ["thread", chosen.tid ? String(chosen.tid) : chosen.thread]];
  const answer = await ask("chart", [...others, ...thread, ...lifeOf(chosen.process)]);
  if (!isCurrent()) return;
  putContent("chart");
  const rows = rowsOfThread(answer, chosen);
  const view = new ChartView(answer, rows, chosen.thread, !state.roots);
  const matched = element("output", "matched");
  const bar = element("div", "bar", element("label", "field", "Thread", threadChoice(known.threads, chosen)),
    toggle("roots", FOLDING, state.roots, (isWhole) => go({ roots: isWhole ? "1" : null, zoom: null })), matched);
  const main = element("div", "main");
  const axis = element("div", "chart-axis");
  const clockOf = (ns, step) => clock(answer.from_ns + ns, true, decimalsOf(step)).slice(11);
  const tip = (at) => {
    const times = `${clockOf(at.from, 1e6)} to ${clockOf(at.to, 1e6)} · ${duration(at.total)}`;
    return [element("div", "kinds", times), element("div", "kinds", `${duration(made.view.sampledNs(at))} ${timeName()} of samples`), detailsOf(at)];
  };
  const made = putGraph(main, bar, tip, (zoom) => {
    const length = chartTimes();
    const step = (zoom.to - zoom.from) / (length - 1);
    axis.replaceChildren(...Array.from({ length }, (_, index) => element("span", "", clockOf(zoom.from + index * step, step))));
    keepZoom(made, zoom);
  });
  // The root is at the top, where the times are.
  made.icicle = true;
  main.lastChild.before(axis);
  if (answer.bucket_ns >= 1e9) main.append(element("p", "range chart-note", `Samples within ${duration(answer.bucket_ns)} stand by weight, because their order is not known.${source.isEmbedded ? "" : " Choose a range below 200 s in the timeline to see it."}`));
  $("content").append(element("div", "with-aside", main));
  const model = answer.model.weighted(weightsOf(answer.model, rows));
  made.view = view;
  searchInGraph(made, model, matched);
  showZoomed(made, view);
  graph = made;
}

/** CPU time of each node of a call tree from the rows of a chart. */
function weightsOf(model, rows) {
  const selfNs = new Float64Array(model.count);
  for (const { node, ns } of rows) selfNs[node] += ns;
  return { selfNs, totalNs: [total(rows.map(({ ns }) => ns))] };
}

/** The threads of the selection; the chosen one is shown. */
function threadChoice(threads, chosen) {
  const made = element("select");
  made.id = "chart-thread";
  const title = (row) => `${row.thread || "(no name)"} · ${duration(row.cpu_ns)}`;
  // The chosen thread may be the only one of the selection, so the way back to all is offered.
  const all = state.thread ? [new Option("All threads", "all")] : [];
  made.append(...threads.map((row, index) => new Option(title(row), String(index), false, row === chosen)), ...all);
  made.addEventListener("change", () => {
    const row = threads[Number(made.value)];
    go(row ? { process: row.process, thread: row.thread } : { thread: null });
  });
  return made;
}
