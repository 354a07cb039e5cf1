// What is looked at, kept in the address so that a link shows it again; the frame around the pages.

const $ = (id) => document.getElementById(id);

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.filter((part) => part !== undefined && part !== null));
  return made;
}

const TABS = [["flame", "Flame graph"], ["methods", "Methods"], ["threads", "Threads"], ["method", "Callers"], ["compare", "Compare"], ["statistics", "Statistics"]];
const PRESETS = [["-5m", "5 min"], ["-15m", "15 min"], ["-1h", "1 h"], ["-6h", "6 h"], ["-24h", "1 day"], ["", "All"]];
/** Parameters of the address that say what is selected; the others say how it is shown. */
const SELECTION = ["process", "thread", "frame", "from", "to"];
const REFRESH_MS = 10_000;

/** What the address says. */
let at = {};
let processes = [];
/** The graph that keys move in; every graph of the page is in `graphs`. */
let graph = null;
let graphs = [];
let heat = null;
/** Grows with each load, so that an answer that comes late is not shown. */
let turn = 0;
/** The address that `at` was read from. */
let shownHash = null;

function readAddress() {
  shownHash = location.hash;
  at = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  at.tab = TABS.some(([tab]) => tab === at.tab) ? at.tab : "flame";
  at.rows = at.rows === "thread" ? "thread" : "process";
}

function addressOf(parameters) {
  const pairs = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(pairs)}`;
}

/** What a zoom is in: where one of these changes, it leads nowhere. */
const ZOOMED_IN = ["process", "thread", "frame", "tab"];

/** Goes to the present view with some of its parameters changed; null removes one. */
function go(changes, replace = false) {
  const zoom = ZOOMED_IN.some((name) => name in changes) && !("zoom" in changes) ? { zoom: null } : {};
  const hash = addressOf({ ...at, ...zoom, ...changes });
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  readAddress();
  load();
}

/** Keeps in the address how something is shown that is shown already. */
function note(changes) {
  const hash = addressOf({ ...at, ...changes });
  if (hash === addressOf(at)) return;
  // A zoom is a step that the browser's back button undoes.
  if (changes.zoom) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  readAddress();
}

/** The address has changed under us: a link was opened, or the browser went back. */
function arrive() {
  if (location.hash === shownHash) return;
  readAddress();
  load();
}

// ---- Asking ----

function selection(from = at) {
  return SELECTION.filter((name) => from[name]).map((name) => [name, from[name]]);
}

async function ask(question, parameters = selection()) {
  let answer;
  try {
    answer = await fetch(`/api/v1/${question}?${new URLSearchParams(parameters)}`);
  } catch {
    throw new Error(`The collector at ${location.host} does not answer. Is it running?`);
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
  return body;
}

// ---- Numbers ----

function clock(ns, seconds = true) {
  const time = new Date(ns / 1e6);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const hours = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return `${day} ${hours}${seconds ? `:${two(time.getSeconds())}` : ""}`;
}

const seconds = (ns) => (ns / 1e9).toFixed(3);

// ---- Frame of the page ----

function press(pairs) {
  for (const [button, pressed] of pairs) button.setAttribute("aria-pressed", String(pressed));
}

function segments(target, entries, chosen, choose) {
  target.replaceChildren(...entries.map(([value, title]) => {
    const button = element("button", "", title);
    button.type = "button";
    button.addEventListener("click", () => choose(value));
    press([[button, value === chosen]]);
    return button;
  }));
}

const nameOf = (process) => process.service || process.command || `pid ${process.pid}`;
/** Whether an account of the CPU time has come; a second after the start it has. */
const isAccounted = (process) => process.explained > 0;
const isDoubtful = (process) => (isAccounted(process) ? process.explained < 0.95 : Boolean(process.process) && process.state !== "live");

function showProcesses() {
  const wanted = $("filter").value.trim().toLowerCase();
  const text = (process) => `${process.service} ${process.host} ${process.pid} ${process.command} ${process.jvm}`.toLowerCase();
  const rows = processes.filter((process) => text(process).includes(wanted));
  const all = { process: "", service: "All processes", state: "", explained: null };
  $("processes").replaceChildren(...[all, ...rows].map((process) => {
    const dot = element("span", `dot ${process.state}`);
    dot.title = process.state;
    const explained = element("em", isDoubtful(process) ? "doubt" : "", isAccounted(process) ? percent(process.explained) : "");
    explained.title = "Share of the process's CPU time that samples explain";
    const under = process.process
      ? `${process.host} · pid ${process.pid} · JDK ${process.jdk_major} · ${duration(process.sampled_ns)}`
      : `${processes.length} profiled, ${processes.filter((other) => other.state === "live").length} live`;
    const line = element("li", "", dot, element("b", "", nameOf(process)), explained, element("small", "", under));
    line.title = process.command || "";
    line.tabIndex = 0;
    line.dataset.press = "";
    line.setAttribute("aria-current", String((at.process || "") === process.process));
    line.addEventListener("click", () => go({ process: process.process || null, thread: null }));
    return line;
  }));
  if (rows.length === 0 && wanted) $("processes").append(element("li", "none", "No process matches."));
  const chosen = processes.find((process) => process.process === at.process);
  $("subject").textContent = chosen ? chosen.command : "All processes";
  $("machine").textContent = chosen ? `JDK ${chosen.jvm} · pid ${chosen.pid} · ${chosen.host}` : "";
}

function showFrame() {
  segments($("tabs"), TABS, at.tab, (tab) => go({ tab }));
  segments($("presets"), PRESETS, at.from && at.to ? null : at.from || "", (from) => go({ from: from || null, to: null }));
  press([[$("rows-process"), at.rows === "process"], [$("rows-thread"), at.rows === "thread"]]);
  for (const name of ["thread", "frame"]) if (document.activeElement !== $(name)) $(name).value = at[name] || "";
}

/** Says which numbers cannot be believed, for the processes that are looked at. */
function showWarnings() {
  const doubted = processes.filter((process) => (!at.process || process.process === at.process) && isDoubtful(process));
  const banner = $("warnings");
  banner.hidden = doubted.length === 0;
  if (doubted.length === 0) return;
  const short = (process) => `${nameOf(process)} (${isAccounted(process) ? percent(process.explained) : "no account was received"})`;
  const names = doubted.slice(0, 3).map(short).join(", ");
  const more = doubted.length > 3 ? ` and ${doubted.length - 3} more` : "";
  const details = element("button", "quiet", "Why?");
  details.addEventListener("click", () => go({ tab: "statistics" }));
  banner.replaceChildren(element("strong", "", "Read with care."), `Samples explain less than 95 % of the CPU time of ${names}${more}. `, details);
}

function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 1800);
}

function hideTip() {
  $("tip").hidden = true;
}

function placeTip(event) {
  const tip = $("tip");
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - width - 10))}px`;
  tip.style.top = `${event.clientY + 20 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 20}px`;
}

// ---- Loading ----

async function load(quiet = false) {
  const mine = ++turn;
  const fresh = () => mine === turn;
  showFrame();
  hideTip();
  if (!quiet) $("content").classList.add("busy");
  const focus = focused();
  // Asked together with the page's own question.
  const frame = showSurroundings(fresh);
  try {
    await PAGES[at.tab](fresh, frame);
    if (fresh() && processes.length === 0) showEmpty();
  } catch (error) {
    if (fresh()) showError(error);
  }
  if (!fresh()) return;
  $("content").classList.remove("busy");
  if (quiet) focus?.();
  if (performance.getEntriesByName("shown").length === 0) performance.mark("shown");
}

/** What is around every page: processes, warnings, timeline. */
async function showSurroundings(fresh) {
  const [known, times] = await Promise.all([
    ask("processes", []),
    ask("timeline", [...selection(), ["by", at.rows], ["limit", "60"]]),
  ]);
  if (!fresh()) return;
  processes = known.processes;
  showProcesses();
  showWarnings();
  heat.show(times);
}

/** Puts the cursor back into a search box that is made anew while somebody types in it. */
function focused() {
  const was = document.activeElement;
  if (!was?.matches("#content input[type=search]")) return null;
  const { selectionStart, selectionEnd } = was;
  return () => {
    const is = document.querySelector("#content input[type=search]");
    is?.focus();
    is?.setSelectionRange(selectionStart, selectionEnd);
  };
}

function showError(error) {
  graph = null;
  const again = element("button", "plain", "Try again");
  again.addEventListener("click", () => load());
  $("content").dataset.page = "error";
  $("content").replaceChildren(element("div", "error", element("p", "", error.message), again));
}

function showEmpty() {
  graph = null;
  $("content").dataset.page = "empty";
  const how = element("pre", "", "java -agentpath:/path/to/libtickwalk.so=collector=HOST:PORT -jar app.jar");
  $("content").replaceChildren(element("div", "empty", element("p", "", "No process has sent samples yet. Start one with the agent:"), how));
}

// ---- Hands ----

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  for (const shown of graphs) shown.setTheme(dark);
  for (const colour of document.querySelectorAll(".legend i")) colour.style.background = graph?.swatch(Number(colour.dataset.kind));
  heat.draw();
}

const isDark = () => document.documentElement.dataset.theme === "dark";

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    toast("Link copied");
  } catch {
    toast("The link is in the address bar");
  }
}

/** What is shown becomes the side that others are compared with. */
function takeBaseline() {
  const base = Object.fromEntries(SELECTION.map((name) => [`before.${name}`, at[name] || null]));
  // A range that ends now would move on, and the baseline with it.
  const { from_ns: from, to_ns: to } = heat.data || {};
  if (to > from) Object.assign(base, { "before.from": seconds(from), "before.to": seconds(to) });
  go({ ...base, tab: "compare" });
  toast("Baseline taken: now choose what to compare with it");
}

function escapeOut() {
  const search = document.querySelector("#content input[type=search]");
  if (search?.value) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
  } else if (graph && graph.view && graph.zoom !== graph.view.root) graph.zoomTo(graph.view.root);
  else go({ from: null, to: null });
}

/** Goes up or down in the list or table that has the focus, or into the page's table. */
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
    return escapeOut();
  }
  if (event.target instanceof HTMLInputElement && event.target.type !== "checkbox") return;
  const tab = TABS[Number(event.key) - 1];
  const actions = {
    "/": () => (document.querySelector("#content input[type=search]") || $("frame")).focus(),
    "?": () => $("keys").showModal(),
    b: takeBaseline,
    h: () => $("heat").focus(),
    c: copyLink,
    l: () => $("live").click(),
    t: () => setTheme(!isDark()),
    i: () => $("icicle")?.click(),
    r: () => $("reverse")?.click(),
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

function start() {
  heat = new Heat($("heat"), $("heat-scroll"));
  let waiting = 0;
  const later = (action) => (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => action(event.target.value.trim()), 300);
  };
  $("thread").addEventListener("input", later((thread) => go({ thread: thread || null }, true)));
  $("frame").addEventListener("input", later((frame) => go({ frame: frame || null }, true)));
  $("filter").addEventListener("input", showProcesses);
  $("rows-process").addEventListener("click", () => go({ rows: "process" }));
  $("rows-thread").addEventListener("click", () => go({ rows: "thread" }));
  $("theme").addEventListener("click", () => setTheme(!isDark()));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("link").addEventListener("click", copyLink);
  document.addEventListener("keydown", onKey);
  addEventListener("popstate", arrive);
  addEventListener("hashchange", arrive);
  setInterval(() => {
    if ($("live").checked && !document.hidden && !$("content").matches(".busy")) load(true);
  }, REFRESH_MS);
  const preference = matchMedia("(prefers-color-scheme: dark)");
  preference.addEventListener("change", () => setTheme(preference.matches));
  setTheme(preference.matches);
  readAddress();
  load();
}

start();
