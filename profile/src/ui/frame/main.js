// Loads views, follows keys and buttons, and starts the page.

const REFRESH_MS = 10_000;
/** Formats of downloads: name, title, suffix. */
const DOWNLOADS = [["pprof", "pprof", "pb.gz"], ["jfr", "JFR", "jfr"], ["collapsed", "Collapsed stacks", "collapsed"], ["speedscope", "speedscope", "speedscope.json"], ["firefox", "Firefox Profiler", "firefox.json"], ["otlp", "OTLP profiles", "otlp"], ["flamegraph", "This page as a file", "html"]];
const VIEWS = { flame: flameView, methods: methodsView, threads: threadsView, method: callersView, compare: compareView, statistics: statisticsView, chart: chartView };

/** The flame graph that keys move in, or null; `graphs` has every one of the view. */
let graph = null;
let graphs = [];
/** Number of the latest load. The answers of earlier loads are not shown. */
let latestLoad = 0;
/** Times that the view covers, by prefix of the parameters of a side. */
let shownSpans = {};

/** Loads the view that the address describes. A quiet load shows no progress and leaves everything in its place. */
async function load(isQuiet = false) {
  const number = ++latestLoad;
  const isCurrent = () => number === latestLoad;
  const focus = isQuiet ? focusedPlace() : undefined;
  source.cancel();
  showTools();
  if (!isQuiet) {
    hideTip();
    $("content").classList.add("busy");
    $("rail").classList.remove("open");
    // A page with its data inside works without a pause, so the sign of progress is drawn first.
    if (source.isLarge) await drawn();
    if (!isCurrent()) return;
  }
  // Both requests are sent at the same time.
  const surroundings = showSurroundings(isCurrent);
  try {
    await VIEWS[state.tab](isCurrent, surroundings);
    if (isCurrent() && processes.length === 0) showEmpty();
  } catch (error) {
    if (isCurrent()) showError(error);
  }
  if (!isCurrent()) return;
  if (isQuiet) {
    restorePlace();
    restoreFocus(focus);
  }
  $("content").classList.remove("busy");
  if (performance.getEntriesByName("shown").length === 0) performance.mark("shown");
}

/** Waits until what the document has is on the screen. */
const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

/** Replaces the content by a view that has no flame graph yet. */
function putContent(name, ...content) {
  // An error in between does not take a view's place.
  if (VIEWS[$("content").dataset.page]) keepPlace();
  graph = null;
  graphs = [];
  onSearch = null;
  $("content").dataset.page = name;
  $("content").replaceChildren(...content);
}

function showError(error) {
  putContent("error", element("div", "error", element("p", "", error.message), button("plain", "Try again", () => load())));
}

function showEmpty() {
  if (source.usualTime) return putContent("empty", nothing("No process sent samples in this time. Choose another one above."));
  const command = element("pre", "", "java -agentpath:/path/to/libtickwalk.so=collector=HOST:PORT -jar app.jar");
  putContent("empty", element("div", "empty", element("p", "", "No process has sent samples yet. Start one with the agent:"), command));
}

// ---- Keys and buttons ----

const isDark = () => document.documentElement.dataset.theme === "dark";

/** Shows what the colours of boxes mean. */
function showKinds() {
  const named = KINDS.filter(({ id }) => id !== "unspecified");
  $("kinds").replaceChildren(...named.flatMap((kind) => [
    element("dt", "", swatched(kind.name, shadeOf(kind, MIDDLE_SHADE, isDark()), "")), element("dd", "", kind.meaning),
  ]));
}

function openHelp() {
  showKinds();
  $("keys").showModal();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  for (const shown of graphs) shown.setTheme(dark);
  for (const colour of document.querySelectorAll("[data-kind]")) colour.style.background = graph?.swatch(Number(colour.dataset.kind));
  timeline.draw();
}

/** The address with fixed times in place of times relative to now, and of those that are left out: both move. */
function lastingLink() {
  // A page with its data inside has a fixed end.
  if (source.isEmbedded) return location.href;
  const times = Object.entries(shownSpans).flatMap(([prefix, span]) => {
    if (!(span?.to_ns > span?.from_ns)) return [];
    // Long ranges consist of whole minutes. The present one still grows, so it is left out.
    const isLong = span.to_ns - span.from_ns >= 600e9;
    const to = isLong ? Math.min(span.to_ns, Math.floor(Date.now() / 60e3) * 60e9) : Math.min(span.to_ns, Date.now() * 1e6);
    return [[`${prefix}from`, seconds(span.from_ns)], [`${prefix}to`, seconds(to)]];
  });
  return new URL(addressOf({ ...state, ...Object.fromEntries(times) }), location.href).href;
}

/** Downloads the selection in a format of `tickwalk export`. */
function download(format) {
  const link = element("a");
  link.href = `/api/v1/export?${new URLSearchParams([...selection(), ["format", format]])}`;
  link.download = `tickwalk.${DOWNLOADS.find(([name]) => name === format)[2]}`;
  link.click();
}

/** Shows the range that was typed: `-90s`, `10:05 to 10:07:30` of the last day shown, or dates with times. */
function showTypedRange(text) {
  const [from, to] = text.split(/\s+to\s+|\s*\.\.\s*/).map(momentOf);
  const isGood = text !== "" && from !== null && to !== null && (from || to);
  $("typed").classList.toggle("wrong", text !== "" && !isGood);
  if (isGood) go({ from, to: to ?? null });
  else if (text !== "") toast("Write -90s, 10:05 to 10:07, or 2026-01-31 10:05 to 2026-01-31 10:07");
}

/** A typed time in the form of the address; null if it is not valid, undefined if it is empty. */
function momentOf(text) {
  if (text === undefined) return undefined;
  if (/^-\d+(\.\d+)?(s|m|h|d)$/.test(text) || text === "now") return text;
  const day = clock(timeline.data?.to_ns || Date.now() * 1e6).slice(0, 10);
  const match = /^(?:(\d{4}-\d\d-\d\d)[ T])?(\d{1,2}:\d\d(?::\d\d)?)$/.exec(text);
  const time = match ? new Date(`${match[1] || day}T${match[2].padStart(match[2].length > 5 ? 8 : 5, "0")}`) : NaN;
  return Number.isFinite(Number(time)) ? seconds(Number(time) * 1e6) : null;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(lastingLink());
    toast("Link copied");
  } catch {
    toast("Copy the link from the address bar");
  }
}

/** Makes the selection the baseline of the comparison. */
function takeBaseline() {
  const baseline = Object.fromEntries(SELECTION.map((name) => [`before.${name}`, state[name] || null]));
  // The present range as fixed times: one that is relative to now would move.
  const { from_ns: from, to_ns: to } = timeline.data || {};
  if (to > from) Object.assign(baseline, { "before.from": seconds(from), "before.to": seconds(to) });
  go({ ...baseline, tab: "compare" });
  toast("Baseline set: choose what to compare with it");
}

/** Clears the search, else resets the zoom, else the range. */
function undoStep() {
  if ($("search").value) searchFor("");
  else if (graph?.view && graph.zoom !== graph.view.root) graph.zoomTo(graph.view.root);
  else go({ from: null, to: null });
}

/** Moves the focus up or down in the list or table that has it, or into the table of the view. */
function moveRow(key) {
  const list = document.activeElement.closest("tbody, ul") || document.querySelector("#content tbody");
  const rows = [...(list?.children || [])].filter((row) => "press" in row.dataset);
  const next = rows.indexOf(document.activeElement) + (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0);
  rows[Math.max(0, Math.min(next, rows.length - 1))]?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  if (event.key === "Escape") {
    document.activeElement.blur();
    return undoStep();
  }
  const isField = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (isField && event.target.type !== "checkbox") return;
  const tab = VIEW_TITLES[Number(event.key) - 1];
  const actions = {
    "/": () => $("search").focus(),
    "?": openHelp,
    b: takeBaseline,
    h: () => $("timeline").focus(),
    c: copyLink,
    l: () => $("live").click(),
    t: () => setTheme(!isDark()),
    i: () => $("icicle")?.click(),
    r: () => $("reverse")?.click(),
    s: () => $("split")?.click(),
    o: () => $("roots")?.click(),
    m: () => graph?.view && openSandwich(graph),
    n: () => stepMatch(1),
    N: () => stepMatch(-1),
  };
  const isArrow = event.key.startsWith("Arrow");
  const pressed = event.target.closest?.("[data-press]");
  const action = tab ? () => go({ tab: tab[0] })
    : event.key === "Enter" && pressed ? () => pressed.click()
    : isArrow && (!graph?.view || event.target.closest?.("tr, li")) ? () => moveRow(event.key)
    : isArrow ? () => graph.move(event.key)
    : event.key === "Enter" && graph?.cursor ? () => graph.zoomTo(graph.cursor)
    : actions[event.key];
  if (!action || (event.key === "Enter" && event.target instanceof HTMLButtonElement)) return;
  event.preventDefault();
  action();
}

function listen() {
  listenToSearch();
  $("rows").addEventListener("change", (event) => go({ rows: event.target.value }));
  $("filter").addEventListener("input", showProcesses);
  $("typed").addEventListener("change", (event) => showTypedRange(event.target.value.trim()));
  $("download").addEventListener("change", (event) => {
    download(event.target.value);
    event.target.value = "";
  });
  const onClick = {
    theme: () => setTheme(!isDark()),
    help: openHelp,
    link: copyLink,
    menu: () => $("rail").classList.toggle("open"),
    details: () => go({ tab: "statistics" }),
  };
  for (const [id, action] of Object.entries(onClick)) $(id).addEventListener("click", action);
  document.addEventListener("keydown", onKey);
  addEventListener("popstate", onAddressChange);
  addEventListener("hashchange", onAddressChange);
  setInterval(() => {
    // A field or a menu of the view would be replaced while a person uses it.
    const isInUse = $("content").matches(".busy") || $("content").contains(document.activeElement.closest("input, select"));
    if ($("live").checked && !document.hidden && !isInUse) load(true);
  }, REFRESH_MS);
  const preference = matchMedia("(prefers-color-scheme: dark)");
  preference.addEventListener("change", () => setTheme(preference.matches));
  setTheme(preference.matches);
}

timeline = new Timeline($("timeline"), $("timeline-scroll"));
$("download").append(...DOWNLOADS.map(([value, title]) => new Option(title, value)));
document.body.classList.toggle("embedded", source.isEmbedded);
// The page of a collector reloads until the user switches that off.
$("live").checked = !source.isEmbedded && !source.usualTime;
listen();
readAddress();
load();
