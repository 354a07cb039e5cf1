// The page of one profile: threads, search, texts around the graph. Everything moves through `state` and `rebuild`.

const HOT_ROWS = 300;

const $ = (id) => document.getElementById(id);
const model = new ProfileModel(JSON.parse($("data").textContent));
const { summary } = model.data;
const scroll = $("scroll");
const graph = new Graph($("canvas"), scroll, $("spacer"), { hover: showTip, zoomed });

const state = { threads: "all", reverse: false, order: "self", search: "", chosen: -1, weights: null };

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- Selection of threads ----

const GROUPS = [["java", "Java threads"], ["virtual", "Virtual threads"], ["compiler", "JIT compiler"], ["gc", "Garbage collector"], ["vm", "JVM"], ["native", "Native threads"]];

function fillThreads() {
  const select = $("threads");
  const whole = model.data.sample_ns.reduce((sum, ns) => sum + ns, 0);
  select.append(new Option(`All threads (${duration(whole)})`, "all"), new Option("All, split by thread", "split"));
  for (const [kind, title] of GROUPS) {
    const members = model.threads.map((thread, index) => ({ thread, index }))
      .filter(({ thread }) => thread.kind === kind && thread.sampled_ns > 0)
      .sort((a, b) => b.thread.sampled_ns - a.thread.sampled_ns);
    if (members.length === 0) continue;
    const group = element("optgroup");
    group.label = title;
    const sum = members.reduce((ns, { thread }) => ns + thread.sampled_ns, 0);
    if (members.length > 1) group.append(new Option(`All ${members.length}: ${title} (${duration(sum)})`, `kind:${kind}`));
    for (const { thread, index } of members) {
      group.append(new Option(`${thread.name} · ${duration(thread.sampled_ns)} (${percent(thread.sampled_ns / whole)})`, `${index}`));
    }
    select.append(group);
  }
}

function selected() {
  if (state.threads === "all" || state.threads === "split") return () => true;
  if (state.threads.startsWith("kind:")) {
    const kind = state.threads.slice(5);
    return (thread) => model.threads[thread].kind === kind;
  }
  const index = Number(state.threads);
  return (thread) => thread === index;
}

function rebuild() {
  state.weights = model.weigh(selected());
  const View = state.reverse ? CallerView : CalleeView;
  const view = state.threads === "split"
    ? View.splitByThread(model, model.threads.map((_, index) => index))
    : new View(model, state.weights);
  // What surrounds the graph decides how much room it has, so it is filled first.
  graph.view = view;
  showHot();
  showLegend();
  find();
  graph.show(view);
}

function zoomed() {
  $("reset").disabled = graph.zoom === graph.view.root;
  showPath();
}

// ---- Search ----

function find() {
  const text = state.search.trim();
  $("matched").replaceChildren();
  graph.matches = state.chosen >= 0 ? Uint8Array.from(model.names, (_, index) => (index === state.chosen ? 1 : 0))
    : text ? model.marks(text)
    : null;
  if (text && !graph.matches) $("matched").textContent = "not a valid regular expression";
  if (graph.matches) {
    const ns = model.matched(state.weights, graph.matches);
    const whole = graph.view.root.total;
    $("matched").append("matched ", element("b", "", percent(whole > 0 ? ns / whole : 0)), ` · ${duration(ns)}`);
  }
  for (const row of $("hot").rows) row.classList.toggle("chosen", Boolean(graph.matches?.[Number(row.dataset.name)]));
}

function search(text, chosen = -1) {
  state.search = text;
  state.chosen = chosen;
  if ($("search").value !== text) $("search").value = text;
  find();
  graph.redraw();
}

// ---- Text around the graph ----

function showHot() {
  const whole = graph.view.root.total || 1;
  const rows = model.methods(state.weights).sort((a, b) => b[state.order] - a[state.order] || b.total - a.total);
  const other = state.order === "self" ? "total" : "self";
  const most = rows.length > 0 ? rows[0][state.order] : 1;
  $("hot").replaceChildren(...rows.slice(0, HOT_ROWS).filter((row) => row[state.order] > 0).map((row) => {
    const line = element("tr");
    line.dataset.name = row.name;
    const cells = { self: element("td", "number", percent(row.self / whole)), total: element("td", "number", percent(row.total / whole)) };
    cells[state.order].classList.add("lead");
    cells[state.order].style.setProperty("--share", `${(row[state.order] / most) * 100}%`);
    cells[other].style.color = "var(--dim)";
    const [place, short] = splitName(model.names[row.name]);
    const method = element("td", "method", short);
    if (place) method.append(element("small", "", place.slice(0, -1)));
    line.title = `${model.names[row.name]}\nself ${duration(row.self)}, total ${duration(row.total)}`;
    line.append(cells.self, cells.total, method);
    return line;
  }));
  if (rows.length === 0) {
    const none = element("td", "none", "No samples in this selection.");
    none.colSpan = 3;
    const line = element("tr");
    line.append(none);
    $("hot").append(line);
  }
}

function showLegend() {
  const ns = model.selfByKind(state.weights);
  const whole = state.weights.totalNs[0] || 1;
  $("legend").replaceChildren(...KINDS.map(({ name }, kind) => ({ name, kind }))
    .filter(({ kind }) => kind > 0 || ns[kind] > 0)
    .map(({ name, kind }) => {
      const entry = element("span");
      const colour = element("i");
      colour.style.background = graph.swatch(kind);
      entry.append(colour, name);
      if (ns[kind] > 0) entry.append(element("em", "", percent(ns[kind] / whole)));
      entry.title = "Share of CPU time with such code running";
      return entry;
    }));
}

function showPath() {
  const { zoom, view } = graph;
  if (zoom === view.root) {
    $("path").textContent = state.reverse
      ? "Running methods at the root, their callers beyond. Click a box to zoom."
      : "Click a box to zoom. Width is CPU time.";
    return;
  }
  $("path").replaceChildren("Zoomed into ", element("b", "", zoom.label), ` · ${duration(zoom.total)} · ${percent(zoom.total / view.root.total)} of selection`);
}

function showTip(node, event) {
  const tip = $("tip");
  tip.hidden = !node;
  if (!node) return;
  const whole = graph.view.root.total || 1;
  const what = element("div", "what", node.label);
  const times = element("dl");
  for (const [title, ns] of [["Total", node.total], ["Self", node.self]]) {
    times.append(element("dt", "", title), element("dd", "", duration(ns)), element("dd", "", percent(ns / whole)), element("dt", "", ""));
  }
  const kinds = element("div", "kinds");
  const ns = graph.view.kinds(node);
  KINDS.forEach(({ name }, kind) => {
    if (!(ns[kind] > 0) || node.name < 0) return;
    const entry = element("span");
    const colour = element("i");
    colour.style.background = graph.swatch(kind);
    entry.append(colour, `${name} ${percent(ns[kind] / node.total)}`);
    kinds.append(entry);
  });
  tip.replaceChildren(what, times, kinds);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - width - 10))}px`;
  tip.style.top = `${event.clientY + 20 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 20}px`;
}

// As in the collector's profile: these begin at their root.
const WHOLE_STACKS = new Set(["end_of_stack", "end_of_continuation", "end_past_thaw", "not_java"]);

function showTrust() {
  const cpu = summary.cpu_ns;
  const lost = Object.values(cpu.lost).reduce((sum, ns) => sum + ns, 0);
  const cut = Object.entries(summary.stops).filter(([stop]) => !WHOLE_STACKS.has(stop)).reduce((sum, [, count]) => sum + count, 0);
  const walks = Object.values(summary.stops).reduce((sum, count) => sum + count, 0) || 1;
  const fact = (className, number, text) => {
    const made = element("span", className);
    made.append(element("b", "", number), ` ${text}`);
    $("facts").append(made);
  };
  fact("", summary.samples.toLocaleString("en"), "samples");
  fact("", duration(cpu.sampled), "CPU time");
  const trusted = summary.explained >= 0.95;
  if (model.data.accounted) fact(trusted ? "verdict" : "verdict doubt", percent(summary.explained), "of CPU time explained");
  else fact("verdict doubt", "CPU time not accounted for", "");
  fact(lost > 0 ? "bad" : "", duration(lost), "lost");
  fact("", percent(cut / walks), "of stacks cut");
  fact("", duration(summary.interval_ns), "interval");
  $("subject").textContent = model.data.command || model.data.title;
  const { version, name, pid } = summary.jvm;
  const started = model.data.started_ns ? new Date(model.data.started_ns / 1e6).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
  $("machine").textContent = [`${name} ${version}`.trim(), pid ? `pid ${pid}` : "", model.data.host, started].filter(Boolean).join(" · ");
  const parts = [["sampled", cpu.sampled, model.data.accounted ? "var(--good)" : "var(--before)"], ["lost", lost, "var(--bad)"], ["unfinished periods", cpu.unfinished, "var(--open)"], ["before timers ran", cpu.before_timer, "var(--before)"]];
  for (const [title, ns, colour] of parts) {
    const part = element("i");
    part.style.cssText = `flex: ${ns} 0 0; background: ${colour}`;
    part.title = `${title}: ${duration(ns)}`;
    $("account-bar").append(part);
  }
  $("account-bar").setAttribute("aria-label", parts.map(([title, ns]) => `${title} ${duration(ns)}`).join(", "));
  if (model.data.warnings.length > 0) {
    const sentences = model.data.warnings.map((text) => text[0].toUpperCase() + text.slice(1)).join(". ");
    $("warnings").append(element("strong", "", "Read with care."), `${sentences}.`);
    $("warnings").hidden = false;
  }
  showAccount(parts);
}

function showAccount(parts) {
  const section = (title, rows) => {
    const made = element("div");
    const list = element("dl");
    for (const [name, value, colour] of rows) {
      const term = element("dt");
      if (colour) {
        const mark = element("span", "swatch");
        mark.style.background = colour;
        term.append(mark);
      }
      term.append(name);
      list.append(term, element("dd", "", value));
    }
    made.append(element("h3", "", title), list);
    $("account").append(made);
  };
  const cpu = summary.cpu_ns;
  section("CPU time of the process", [
    ...parts.map(([title, ns, colour]) => [title, duration(ns), colour]),
    ...Object.entries(cpu.lost).map(([cause, ns]) => [`lost: ${cause}`, duration(ns)]),
  ]);
  section("Why walks ended", Object.entries(summary.stops).sort((a, b) => b[1] - a[1]).map(([stop, count]) => [stop, count.toLocaleString("en")]));
  section("Cost of profiling", [
    ["signal handler, median", `${summary.handler_cycles.p50.toLocaleString("en")} cycles`],
    ["signal handler, 99th percentile", `${summary.handler_cycles.p99.toLocaleString("en")} cycles`],
    ["walk, median", `${(summary.sampler.walk_ns.p50 / 1e3).toFixed(1)} µs`],
    ["walk, 99th percentile", `${(summary.sampler.walk_ns.p99 / 1e3).toFixed(1)} µs`],
    ["sampler thread", duration(summary.sampler.cpu_ns)],
    ["queues", bytes(summary.queue.capacity_bytes)],
    ["snapshot pool", bytes(summary.queue.pool_bytes)],
  ]);
}

// ---- Hands ----

function press(pairs) {
  for (const [id, pressed] of pairs) $(id).setAttribute("aria-pressed", String(pressed));
}

function orient(icicle) {
  press([["icicle", icicle], ["flame", !icicle]]);
  graph.orient(icicle);
}

function direct(reverse) {
  state.reverse = reverse;
  press([["reverse", reverse], ["forward", !reverse]]);
  rebuild();
}

function order(by) {
  state.order = by;
  press([["by-self", by === "self"], ["by-total", by === "total"]]);
  showHot();
  find();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  graph.setTheme(dark);
  if (graph.view) showLegend();
}

function escape() {
  if (state.search || state.chosen >= 0) search("");
  else graph.zoomTo(graph.view.root);
  $("search").blur();
  scroll.focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (event.key === "Escape") return escape();
  if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
  const actions = {
    "/": () => $("search").focus(),
    "?": () => $("keys").showModal(),
    i: () => orient(!graph.icicle),
    r: () => direct(!state.reverse),
    t: () => setTheme(!graph.dark),
    Enter: () => event.target instanceof HTMLButtonElement || graph.zoomTo(graph.cursor),
  };
  const action = event.key.startsWith("Arrow") ? () => graph.move(event.key) : actions[event.key];
  if (!action || (event.key === "Enter" && event.target instanceof HTMLButtonElement)) return;
  event.preventDefault();
  action();
}

function listen() {
  document.addEventListener("keydown", onKey);
  $("threads").addEventListener("change", (event) => {
    state.threads = event.target.value;
    rebuild();
  });
  $("search").addEventListener("input", (event) => search(event.target.value));
  $("hot").addEventListener("click", (event) => {
    const name = Number(event.target.closest("tr")?.dataset.name);
    if (Number.isNaN(name)) return;
    state.chosen === name ? search("") : search(model.names[name], name);
  });
  const onClick = {
    flame: () => orient(false), icicle: () => orient(true), forward: () => direct(false), reverse: () => direct(true),
    "by-self": () => order("self"), "by-total": () => order("total"), reset: () => graph.zoomTo(graph.view.root),
    theme: () => setTheme(!graph.dark), help: () => $("keys").showModal(),
    "account-toggle": () => {
      $("account").hidden = !$("account").hidden;
      $("account-toggle").setAttribute("aria-expanded", String(!$("account").hidden));
    },
  };
  for (const [id, action] of Object.entries(onClick)) $(id).addEventListener("click", action);
  const preference = matchMedia("(prefers-color-scheme: dark)");
  preference.addEventListener("change", () => setTheme(preference.matches));
  setTheme(preference.matches);
}

listen();
showTrust();
fillThreads();
rebuild();
