// Drawing and hands: everything the user sees moves through `state` and `refresh`.

const ROW = 19;
/** Boxes narrower than this many pixels are left out; zooming brings them in. */
const NARROWEST = 0.5;
const HOT_ROWS = 300;

const $ = (id) => document.getElementById(id);
const model = new Model(JSON.parse($("data").textContent));
const { summary } = model.data;
const canvas = $("canvas");
const paper = canvas.getContext("2d");
const scroll = $("scroll");

const state = {
  threads: "all", icicle: false, reverse: false, order: "self", search: "", chosen: -1,
  weights: null, view: null, zoom: null, hover: null, cursor: null,
  matches: null, rows: [], width: 0, height: 0, fromRoot: 0,
};

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- Selection of threads ----

const GROUPS = [["java", "Java threads"], ["compiler", "JIT compiler"], ["gc", "Garbage collector"], ["vm", "JVM"], ["native", "Native threads"]];

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
  state.view = state.threads === "split"
    ? View.splitByThread(model, model.threads.map((_, index) => index))
    : new View(model, state.weights);
  state.zoom = state.view.root;
  state.cursor = null;
  showHot();
  showLegend();
  find();
  refresh(true);
}

// ---- Layout ----

/** Boxes wide enough to be seen, by row from the root. */
function layOut() {
  const rows = [];
  const put = (node, x, width) => (rows[node.depth] ||= []).push({ node, x, width });
  for (let above = state.zoom.parent; above; above = above.parent) put(above, 0, state.width);
  const visit = [[state.zoom, 0, state.width]];
  while (visit.length > 0) {
    const [node, x, width] = visit.pop();
    put(node, x, width);
    let left = x;
    for (const child of state.view.children(node)) {
      const share = node.total > 0 ? (child.total / node.total) * width : 0;
      // Heaviest first: once one is too narrow, the rest is too.
      if (share < NARROWEST) break;
      visit.push([child, left, share]);
      left += share;
    }
  }
  for (const row of rows) row.sort((a, b) => a.x - b.x);
  state.rows = rows;
}

function refresh(toRoot) {
  if (toRoot) state.fromRoot = 0;
  const { fromRoot } = state;
  state.width = Math.max(scroll.clientWidth - 12, 50);
  state.height = scroll.clientHeight;
  layOut();
  $("spacer").style.height = `${Math.max(state.rows.length * ROW + 2, state.height)}px`;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = state.width * ratio;
  canvas.height = state.height * ratio;
  canvas.style.width = `${state.width}px`;
  canvas.style.height = `${state.height}px`;
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  // What stays in place is the distance from the root, wherever that is.
  scroll.scrollTop = state.icicle ? fromRoot : scroll.scrollHeight - scroll.clientHeight - fromRoot;
  $("reset").disabled = state.zoom === state.view.root;
  showPath();
  draw();
}

/** Upper edge of a row on the canvas. */
function top(depth) {
  const y = state.icicle ? depth * ROW : Math.max(state.rows.length * ROW + 2, state.height) - (depth + 1) * ROW;
  return y - scroll.scrollTop;
}

// ---- Colours ----

let dark = false;
let fills = [];

/** Shades of each kind, so that neighbours can be told apart; which one a method gets depends on its name only. */
const SHADES = 5;

function mix() {
  fills = KINDS.map(({ hue, saturation }) => Array.from({ length: SHADES }, (_, shade) => {
    const step = shade - (SHADES - 1) / 2;
    return dark
      ? `hsl(${hue + step * 2} ${saturation * 0.78}% ${37 + step * 1.9}%)`
      : `hsl(${hue + step * 2} ${saturation}% ${72 + step * 2.3}%)`;
  }));
}

const shadeOf = new Map();
function shade(label) {
  let value = shadeOf.get(label);
  if (value === undefined) {
    let hash = 7;
    for (let i = 0; i < label.length; i++) hash = (hash * 31 + label.charCodeAt(i)) | 0;
    shadeOf.set(label, (value = Math.abs(hash) % SHADES));
  }
  return value;
}

const swatch = (kind) => fills[kind][(SHADES - 1) / 2];

// ---- Texts in boxes ----

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const measured = new Map();
function widthOf(text) {
  let width = measured.get(text);
  if (width === undefined) measured.set(text, (width = paper.measureText(text).width));
  return width;
}

/** Splits `package.Class.method` in front of the class; other names stay whole. */
function splitName(label) {
  const match = /^((?:[a-z_][\w$]*\.)+)([A-Z][^\s(]*)$/.exec(label);
  return match ? [match[1], match[2]] : ["", label];
}

/** As much of a name as fits: with package, without, the method alone, or its beginning. */
function fitted(label, width) {
  if (width < 16) return "";
  if (widthOf(label) <= width) return label;
  const short = splitName(label)[1];
  if (widthOf(short) <= width) return short;
  const method = short.slice(short.lastIndexOf(".") + 1);
  if (method && widthOf(method) <= width) return method;
  const room = Math.floor((width - 8) / (widthOf(method) / Math.max(method.length, 1)));
  return room >= 2 ? `${method.slice(0, room)}…` : "";
}

// ---- Drawing ----

function draw() {
  const ink = dark ? "#f3f5f8" : "#1a1f29";
  paper.clearRect(0, 0, state.width, state.height);
  paper.font = FONT;
  paper.textBaseline = "middle";
  state.rows.forEach((row, depth) => {
    const y = top(depth);
    if (y > state.height || y + ROW < 0) return;
    for (const { node, x, width } of row) drawBox(node, x, y, width, ink);
  });
  for (const [node, line] of [[state.cursor, 2], [state.hover, 1.5]]) outline(node, line, ink);
}

function drawBox(node, x, y, width, ink) {
  const hit = state.matches && node.name >= 0 && state.matches[node.name];
  const faded = (state.matches && !hit) || node.depth < state.zoom.depth;
  paper.globalAlpha = faded ? 0.38 : 1;
  paper.fillStyle = hit ? (dark ? "#b5379f" : "#ef8fdf") : fills[node.kind][shade(node.label)];
  const inner = Math.max(width - (width > 3 ? 1 : 0), 0.5);
  if (width > 8) {
    paper.beginPath();
    paper.roundRect(x, y + 0.5, inner, ROW - 1.5, 2);
    paper.fill();
  } else {
    paper.fillRect(x, y + 0.5, inner, ROW - 1.5);
  }
  const text = fitted(node.label, inner - 9);
  if (text) {
    paper.globalAlpha = faded ? 0.6 : 1;
    paper.fillStyle = ink;
    paper.fillText(text, x + 5, y + ROW / 2 + 0.5);
  }
  paper.globalAlpha = 1;
}

function outline(node, line, ink) {
  const row = node && state.rows[node.depth];
  const found = row && row.find((entry) => entry.node === node);
  if (!found) return;
  paper.strokeStyle = ink;
  paper.lineWidth = line;
  paper.strokeRect(found.x + line / 2, top(node.depth) + line / 2, Math.max(found.width - 1 - line, 1), ROW - 0.5 - line);
}

// ---- Search ----

function find() {
  const text = state.search.trim();
  state.matches = null;
  $("matched").replaceChildren();
  let test = null;
  if (state.chosen >= 0) {
    test = (_, index) => index === state.chosen;
  } else if (/^\/.+\/$/.test(text)) {
    try {
      const pattern = new RegExp(text.slice(1, -1), "i");
      test = (name) => pattern.test(name);
    } catch {
      $("matched").textContent = "not a valid regular expression";
      return;
    }
  } else if (text) {
    const wanted = text.toLowerCase();
    test = (name) => name.toLowerCase().includes(wanted);
  }
  if (test) {
    state.matches = Uint8Array.from(model.names, (name, index) => (test(name, index) ? 1 : 0));
    const ns = model.matched(state.weights, state.matches);
    const whole = state.view.root.total;
    $("matched").append("matched ", element("b", "", percent(whole > 0 ? ns / whole : 0)), ` · ${duration(ns)}`);
  }
  for (const row of $("hot").rows) row.classList.toggle("chosen", Boolean(state.matches?.[Number(row.dataset.name)]));
}

function search(text, chosen = -1) {
  state.search = text;
  state.chosen = chosen;
  if ($("search").value !== text) $("search").value = text;
  find();
  draw();
}

// ---- Text around the graph ----

function showHot() {
  const whole = state.view.root.total || 1;
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
      colour.style.background = swatch(kind);
      entry.append(colour, name);
      if (ns[kind] > 0) entry.append(element("em", "", percent(ns[kind] / whole)));
      entry.title = "Share of CPU time with such code running";
      return entry;
    }));
}

function showPath() {
  const { zoom, view } = state;
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
  const whole = state.view.root.total || 1;
  const what = element("div", "what", node.label);
  const times = element("dl");
  for (const [title, ns] of [["Total", node.total], ["Self", node.self]]) {
    times.append(element("dt", "", title), element("dd", "", duration(ns)), element("dd", "", percent(ns / whole)), element("dt", "", ""));
  }
  const kinds = element("div", "kinds");
  const ns = state.view.kinds(node);
  KINDS.forEach(({ name }, kind) => {
    if (!(ns[kind] > 0) || node.name < 0) return;
    const entry = element("span");
    const colour = element("i");
    colour.style.background = swatch(kind);
    entry.append(colour, `${name} ${percent(ns[kind] / node.total)}`);
    kinds.append(entry);
  });
  tip.replaceChildren(what, times, kinds);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - width - 10))}px`;
  tip.style.top = `${event.clientY + 20 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 20}px`;
}

// As in the collector's profile: nothing is missing from these.
const WHOLE_STACKS = new Set(["end_of_stack", "end_of_continuation", "not_java"]);

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

function boxAt(event) {
  const area = canvas.getBoundingClientRect();
  const x = event.clientX - area.left;
  const y = event.clientY - area.top;
  const depth = state.icicle
    ? Math.floor((y + scroll.scrollTop) / ROW)
    : Math.floor((Math.max(state.rows.length * ROW + 2, state.height) - (y + scroll.scrollTop)) / ROW);
  return state.rows[depth]?.find((entry) => x >= entry.x && x < entry.x + entry.width)?.node || null;
}

function zoom(node) {
  if (!node) return;
  state.zoom = node;
  state.hover = null;
  showTip(null);
  refresh(false);
}

function press(pairs) {
  for (const [id, pressed] of pairs) $(id).setAttribute("aria-pressed", String(pressed));
}

function orient(icicle) {
  state.icicle = icicle;
  press([["icicle", icicle], ["flame", !icicle]]);
  refresh(true);
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

function setTheme(value) {
  dark = value;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  mix();
  if (state.view) {
    showLegend();
    draw();
  }
}

function move(key) {
  const at = state.cursor || state.zoom;
  const siblings = at.parent ? state.view.children(at.parent) : [at];
  const index = siblings.indexOf(at);
  const deeper = state.icicle ? "ArrowDown" : "ArrowUp";
  const to = key === "ArrowLeft" ? siblings[index - 1]
    : key === "ArrowRight" ? siblings[index + 1]
    : key === deeper ? state.view.children(at)[0]
    : at.parent;
  if (!to || !state.rows[to.depth]?.some((entry) => entry.node === to)) return;
  state.cursor = to;
  const y = top(to.depth);
  if (y < 0) scroll.scrollTop += y - ROW;
  if (y + ROW > state.height) scroll.scrollTop += y + 2 * ROW - state.height;
  draw();
  const row = state.rows[to.depth].find((entry) => entry.node === to);
  const area = canvas.getBoundingClientRect();
  showTip(to, { clientX: area.left + row.x, clientY: area.top + top(to.depth) });
}

function escape() {
  if (state.search || state.chosen >= 0) search("");
  else zoom(state.view.root);
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
    i: () => orient(!state.icicle),
    r: () => direct(!state.reverse),
    t: () => setTheme(!dark),
    Enter: () => event.target instanceof HTMLButtonElement || zoom(state.cursor),
  };
  const action = event.key.startsWith("Arrow") ? () => move(event.key) : actions[event.key];
  if (!action || (event.key === "Enter" && event.target instanceof HTMLButtonElement)) return;
  event.preventDefault();
  action();
}

function listen() {
  canvas.addEventListener("mousemove", (event) => {
    const node = boxAt(event);
    if (node !== state.hover) {
      state.hover = node;
      draw();
    }
    canvas.style.cursor = node ? "pointer" : "default";
    showTip(node, event);
  });
  canvas.addEventListener("mouseleave", () => {
    state.hover = null;
    showTip(null);
    draw();
  });
  canvas.addEventListener("click", (event) => zoom(boxAt(event)));
  scroll.addEventListener("scroll", () => requestAnimationFrame(() => {
    // While a change of size is waiting to be laid out, the position is not the user's.
    if (scroll.clientHeight !== state.height) return;
    state.fromRoot = state.icicle ? scroll.scrollTop : scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop;
    draw();
  }));
  new ResizeObserver(() => requestAnimationFrame(() => state.view && refresh(false))).observe(scroll);
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
    "by-self": () => order("self"), "by-total": () => order("total"), reset: () => zoom(state.view.root),
    theme: () => setTheme(!dark), help: () => $("keys").showModal(),
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
