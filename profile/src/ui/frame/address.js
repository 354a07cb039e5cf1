// The state of the page. The address holds all of it, so that a link shows the same view again.

const VIEW_TITLES = [["flame", "Flame graph"], ["methods", "Methods"], ["threads", "Threads"], ["method", "Sandwich"], ["compare", "Compare"], ["statistics", "Statistics"], ["chart", "Flame chart"]];
/** Parameters that select samples. The others say how the samples are shown. */
const SELECTION = ["process", "label", "thread", "thread_kind", "frame", "include", "exclude", "kind", "state", "from", "to"];
/** A change of one of these makes a zoom meaningless. */
const RESETS_ZOOM = ["process", "label", "thread", "thread_kind", "frame", "include", "exclude", "kind", "state", "tab", "split"];

/** The parameters of the address. */
let state = {};
/** The address that `state` was read from. */
let stateHash = null;

function readAddress() {
  stateHash = location.hash;
  state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  state.tab = VIEW_TITLES.some(([tab]) => tab === state.tab) ? state.tab : "flame";
  const isKnown = state.rows === "thread" || state.rows === "process" || state.rows?.startsWith("label:");
  if (source.usualTime && !state.from) state.from = source.usualTime;
  if (!isKnown) state.rows = source.isEmbedded ? "thread" : "process";
}

function addressOf(parameters) {
  const pairs = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(pairs)}`;
}

/** Changes parameters and loads the view they describe; null removes a parameter. */
function go(changes, replace = false) {
  const zoom = RESETS_ZOOM.some((name) => name in changes) && !("zoom" in changes) ? { zoom: null } : {};
  const hash = addressOf({ ...state, ...zoom, ...changes });
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  readAddress();
  load();
}

/** Changes parameters that the page shows already. */
function keepInAddress(changes) {
  const hash = addressOf({ ...state, ...changes });
  if (hash === addressOf(state)) return;
  // The browser's back button undoes a zoom.
  if (changes.zoom) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  readAddress();
}

/** Follows a change of the address by a link or by the browser's buttons. */
function onAddressChange() {
  if (location.hash === stateHash) return;
  readAddress();
  load();
}

/** The parameters that select samples, as pairs. */
function selection(from = state) {
  return SELECTION.filter((name) => from[name]).map((name) => [name, from[name]]);
}

/** The chosen time as parameters, for questions about processes, which a lake answers for a limited time only. */
function timeOfProcesses() {
  return selection().filter(([name]) => source.usualTime && (name === "from" || name === "to"));
}

/** Answers a question of the API, about the selection unless `parameters` are given. */
function ask(question, parameters = selection()) {
  return source.ask(question, parameters);
}
