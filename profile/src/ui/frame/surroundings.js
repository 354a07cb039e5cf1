// Around every view: the list of processes, warnings, the account of one process in a line, the timeline, the tools.

const PRESETS = [["-5m", "5 min"], ["-15m", "15 min"], ["-1h", "1 h"], ["-6h", "6 h"], ["-24h", "1 day"]];
const PRESET_SECONDS = [300, 900, 3600, 21600, 86400];
const THREAD_KINDS = [["", "All threads"], ["java", "Java threads"], ["virtual", "Virtual threads"], ["compiler", "JIT compiler"], ["gc", "Garbage collector"], ["vm", "JVM"], ["native", "Native threads"]];

let processes = [];
let timeline = null;

/** Returns the quantity that the numbers of a mode measure. */
const TIMES = { cputime: "CPU time", wall: "wall time", jvmti: "CPU time at safepoints" };
const timeOf = (process) => TIMES[process.mode] || TIMES.cputime;

/** Returns the quantity that the numbers of the selected processes measure. */
function timeName() {
  const times = [...new Set(selectedProcesses().map(timeOf))];
  return times.length > 1 ? "time of several modes" : times[0] || TIMES.cputime;
}

/** The warning of sums whose parts differ in meaning; empty if all processes have one mode. */
function mixedModes() {
  const selected = new Set(selectedProcesses().map(({ mode }) => mode));
  // In the order and with the words of the other answers.
  const modes = Object.keys(TIMES).filter((mode) => selected.has(mode));
  if (modes.length < 2) return [];
  return [`The sums mix modes whose times differ in meaning (${modes.join(", ")}); select one, as with label:mode=${modes[0]} in the search. `];
}

const nameOf = (process) => process.service || process.command || `pid ${process.pid}`;
/** Whether statistics were received; the first ones come a second after the start. */
const isAccounted = (process) => process.explained > 0;
const isDoubtful = (process) => (isAccounted(process) ? process.explained < 0.95 : Boolean(process.process) && process.state !== "live");

/** The processes that the address selects, by the rules of the API. */
function selectedProcesses() {
  const isNamed = (process) => !state.process || [process.process, String(process.pid), process.service].includes(state.process);
  const hasLabel = (process) => {
    const [, key, value] = /^([^=]*)=(.*)$/.exec(state.label || "") || [];
    if (key === undefined) return true;
    if (key === "command") return process.command.includes(value);
    return labelOf(process, key) === value;
  };
  return processes.filter((process) => isNamed(process) && hasLabel(process));
}

/** The process that the page shows alone: the selected one, or the only one. */
function shownProcess() {
  const selected = selectedProcesses();
  return selected.length === 1 ? selected[0] : undefined;
}

function showProcesses() {
  const filter = $("filter").value.trim().toLowerCase();
  const text = (process) => `${process.service} ${process.host} ${process.pid} ${process.command} ${process.jvm}`.toLowerCase();
  const rows = processes.filter((process) => text(process).includes(filter));
  const groups = groupsOf(rows);
  const selected = selectedProcesses();
  const all = { process: "", service: "All processes", state: "", explained: null };
  const lines = [all, ...groups.flatMap(([group, members]) => [...(group ? [group] : []), ...members])];
  $("processes").replaceChildren(...lines.map((process) => {
    if (process.label) return groupLine(process);
    const dot = element("span", `dot ${process.state}`);
    dot.title = process.state;
    const explained = element("em", isDoubtful(process) ? "doubt" : "", isAccounted(process) ? percent(process.explained) : "");
    explained.title = `Share of the ${process.process ? timeOf(process) : "time"} of the process that samples explain`;
    const under = process.process
      ? `${process.host} · pid ${process.pid} · JDK ${process.jdk_major} · ${duration(process.sampled_ns)}`
      : `${processes.length} profiled, ${processes.filter((other) => other.state === "live").length} live`;
    const line = element("li", "", dot, element("b", "", nameOf(process)), explained, element("small", "", under));
    line.title = process.command || "";
    const isCurrent = process.process ? Boolean(state.process) && selected.includes(process) : !state.process;
    line.setAttribute("aria-current", String(isCurrent));
    onPress(line, () => go({ process: process.process || null, label: null, thread: null }));
    return line;
  }));
  $("processes").classList.toggle("grouped", groups.some(([group]) => group));
  if (rows.length === 0 && filter) $("processes").append(element("li", "none", "No process matches the filter."));
  // A page with its data inside needs no list of one process.
  document.body.classList.toggle("single", source.isEmbedded && processes.length <= 1);
  const shown = shownProcess();
  $("subject").textContent = shown ? shown.command || nameOf(shown) : "All processes";
  $("subject").title = shown?.command || "";
  const started = shown ? `started ${clock(shown.first_ns)}` : "";
  $("machine").textContent = shown ? [shown.mode === "cputime" ? "" : timeOf(shown), `JDK ${shown.jvm}`, `pid ${shown.pid}`, shown.host, started].filter(Boolean).join(" · ") : "";
}

/** Keys of labels that processes can be grouped by. */
function labelKeys() {
  const own = processes.flatMap((process) => (process.labels || []).map((label) => label.split("=")[0]));
  return [...new Set(["service", "host", ...own])];
}

/** The value of a label of a process; empty if it has none. */
function labelOf(process, key) {
  if (["service", "host", "jvm", "command", "pid"].includes(key)) return String(process[key]);
  const own = process.labels?.find((label) => label.startsWith(`${key}=`))?.slice(key.length + 1);
  return own ?? (key === "mode" ? process.mode : "");
}

/** Processes by the label that the rows of the timeline stand for, as [group or null, processes]. */
function groupsOf(rows) {
  const key = /^label:(.+)$/.exec(state.rows)?.[1];
  if (!key) return [[null, rows]];
  const values = [...new Set(rows.map((process) => labelOf(process, key)))].sort();
  return values.map((value) => {
    const members = rows.filter((process) => labelOf(process, key) === value);
    return [{ label: `${key}=${value}`, value, members }, members];
  });
}

function groupLine({ label, value, members }) {
  const count = `${members.length} process${members.length === 1 ? "" : "es"} · ${duration(total(members.map((process) => process.sampled_ns)))}`;
  const line = element("li", "group", element("b", "", value || `no ${label.slice(0, -1)}`), element("small", "", count));
  line.setAttribute("aria-current", String(state.label === label));
  if (value) onPress(line, () => go({ label: state.label === label ? null : label, process: null, thread: null }));
  return line;
}

/** Offers the choices for the rows of the timeline. */
function showRows() {
  const labels = source.isEmbedded && processes.length < 2 ? [] : labelKeys().map((key) => [`label:${key}`, `By ${key}`]);
  const entries = [["process", "By process"], ["thread", "By thread"], ...labels];
  if (!entries.some(([value]) => value === state.rows)) entries.push([state.rows, `By ${state.rows.slice("label:".length)}`]);
  $("rows").replaceChildren(...entries.map(([value, title]) => new Option(title, value, false, value === state.rows)));
}

function showTools() {
  segments($("tabs"), VIEW_TITLES, state.tab, (tab) => go({ tab }));
  showPressed($("tabs"));
  const all = source.usualTime ? [] : [["", "All"]];
  const presets = [...PRESETS.filter((_, index) => PRESET_SECONDS[index] < source.spanS), ...all];
  segments($("presets"), presets, state.from && state.to ? null : state.from || "", (from) => go({ from: from || null, to: null }));
  $("side").hidden = state.tab !== "compare";
  if (state.tab === "compare" && !hasBaseline()) timeline.side = "before.";
  segments($("side"), [["before.", "Drag: before"], ["", "Drag: now"]], timeline.side, (side) => {
    timeline.side = side;
    showTools();
  });
  showRows();
  showSearch();
}

/** Shows the warnings of the shown process, or of all processes that have some. */
function showWarnings(account) {
  const warnings = mixedModes();
  if (account) {
    warnings.push(...(account.warnings || []).map((text) => `${text[0].toUpperCase()}${text.slice(1)}. `));
  }
  const doubtful = processes.filter((process) => (account ? process.process === account.process : true) && isDoubtful(process));
  if (warnings.length === 0 && doubtful.length > 0) {
    const short = (process) => `${nameOf(process)} (${isAccounted(process) ? percent(process.explained) : "no statistics were received"})`;
    const more = doubtful.length > 3 ? ` and ${doubtful.length - 3} more` : "";
    warnings.push(`Samples explain less than 95 % of the time of ${doubtful.slice(0, 3).map(short).join(", ")}${more}. `);
  }
  $("warnings").hidden = warnings.length === 0;
  $("warnings").replaceChildren(element("strong", "", "Read with care."), ...warnings, button("quiet", "Why?", () => go({ tab: "statistics" })));
}

/** Shows the account of one process in a line and as a bar. */
function showAccount(account) {
  $("account").hidden = !account;
  if (!account) return;
  const fact = (className, value, text) => element("span", className, element("b", "", value), ` ${text}`);
  const lost = lostOf(account);
  const walks = total(Object.values(account.stops)) || 1;
  const cut = total(Object.entries(account.stops).map(([stop, count]) => (COMPLETE_STACKS.has(stop) ? 0 : count)));
  $("facts").replaceChildren(
    fact("", number(account.samples), "samples"),
    fact("", duration(account.sampled_ns), timeOf(account)),
    isAccounted(account)
      ? fact(isDoubtful(account) ? "verdict doubt" : "verdict", percent(account.explained), `of ${timeOf(account)} explained`)
      : fact("verdict doubt", `${timeOf(account)} not accounted for`, ""),
    fact(lost > 0 ? "bad" : "", duration(lost), "lost"),
    fact("", percent(cut / walks), "of stacks incomplete"),
    account.samples > 0
      ? fact("", duration(account.sampled_ns / account.samples), `of ${timeOf(account)} per sample`)
      : fact("", duration(account.interval_ns), "interval"),
  );
  $("account-bar").replaceWith(Object.assign(accountBar(accountParts(account)), { id: "account-bar" }));
}

/** Whether the timeline shows all that a parameter could select: in a comparison, so that both sides can be chosen. */
function isOpenInTimeline(name) {
  const open = source.usualTime ? [state.rows] : ["from", "to", state.rows];
  return state.tab === "compare" && open.includes(name);
}

/** Loads and shows everything around the view. */
async function showSurroundings(isCurrent) {
  const [known, times] = await Promise.all([
    ask("processes", timeOfProcesses()),
    ask("timeline", [...selection().filter(([name]) => !isOpenInTimeline(name)), ["by", state.rows], ["limit", "60"]]),
  ]);
  if (!isCurrent()) return;
  // The order stays when a process sends: by name, then by age.
  processes = known.processes.sort((a, b) => nameOf(a).localeCompare(nameOf(b)) || a.first_ns - b.first_ns);
  if (state.tab !== "compare") shownSpans = { "": { from_ns: times.from_ns, to_ns: times.to_ns } };
  showProcesses();
  showRows();
  showSearchChips();
  timeline.show(times);
  const shown = shownProcess();
  const account = shown && (await ask("statistics", [...timeOfProcesses(), ["process", shown.process]])).processes[0];
  if (!isCurrent()) return;
  showAccount(account);
  showWarnings(account);
}
