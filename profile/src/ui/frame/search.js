// One search for every view. A plain text marks or filters what the view shows; a word in front, as in `thread:main`,
// narrows the selection, which the chips beside the field show.

/** Words that narrow the selection: parameter and title. */
const NARROWING = {
  thread: ["thread", "Thread"], threads: ["thread_kind", "Kind of thread"], frame: ["frame", "Frame"], code: ["kind", "Code"],
  include: ["include", "Only stacks with"], exclude: ["exclude", "No stacks with"], state: ["state", "State"], label: ["label", "Label"], process: ["process", "Process"],
};

/** Shows the matches of a text in the present view, or null. */
let onSearch = null;

/** The parameter and the value that a text narrows the selection by; null for a plain text. */
function narrowingOf(text) {
  const [, word, value] = /^(\w+):\s*([^:\s].*)$/.exec(text) || [];
  return word in NARROWING ? [NARROWING[word][0], value] : null;
}

function showSearch() {
  if (document.activeElement !== $("search")) $("search").value = state.search || "";
  showSearchChips();
}

/** Shows the restrictions of the selection as chips. */
function showSearchChips() {
  const shown = { kind: KINDS.find(({ id }) => id === state.kind)?.name, thread_kind: titleOfThreads(state.thread_kind), process: nameOfId(state.process) };
  const chips = Object.values(NARROWING).filter(([name]) => state[name] && !(name === "process" && processes.length < 2));
  $("chips").replaceChildren(...chips.map(([name, title]) => {
    const chip = button("plain chip", "", () => go({ [name]: null }));
    chip.id = `chip-${name}`;
    chip.title = "Remove this restriction";
    chip.append(element("span", "", title), element("b", "", shown[name] || state[name]), element("span", "", "✕"));
    return chip;
  }));
}

const titleOfThreads = (kind) => THREAD_KINDS.find(([id]) => id === kind)?.[1];
function nameOfId(id) {
  const found = processes.find((process) => process.process === id);
  return found ? `${nameOf(found)} (${found.pid})` : undefined;
}

/** Makes `show` show the matches of the search, and those of the present text. */
function searchIn(show) {
  onSearch = show;
  show(state.search || "");
}

function search(text) {
  if (onSearch) onSearch(text);
  else keepInAddress({ search: text || null });
}

/** Goes to the next or the previous box that the search marks. */
function stepMatch(by) {
  if (graph?.matches) graph.steps?.step(by);
}

/** Puts a text into the search as if it were typed. */
function searchFor(text) {
  $("search").value = text;
  search(text);
}

/** Narrows the selection if the text has such a word; reports a value that does not exist. */
function narrow(text) {
  const [name, value] = narrowingOf(text) || [];
  if (!name) return;
  const kinds = { thread_kind: THREAD_KINDS.map(([id]) => id), kind: KINDS.map(({ id }) => id), state: ["running", "waiting"] }[name];
  if (kinds && !kinds.includes(value)) return toast(`Write one of ${kinds.filter(Boolean).join(", ")}`);
  if (name === "label" && !/^[^=]+=.+/.test(value)) return toast("Write label:KEY=VALUE, such as label:service=shop.jar");
  $("search").value = "";
  go({ [name]: value, search: null });
}

function listenToSearch() {
  const field = $("search");
  field.addEventListener("input", () => {
    const text = field.value.trim();
    const isChosen = [...$("suggestions").children].some((option) => option.value === text);
    if (isChosen) narrow(text);
    else if (!narrowingOf(text)) search(text);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    if (narrowingOf(field.value.trim())) narrow(field.value.trim());
    else stepMatch(event.shiftKey ? -1 : 1);
  });
  field.addEventListener("focus", suggest);
}

/** Suggests words and values that narrow the selection. */
async function suggest() {
  const kinds = THREAD_KINDS.filter(([id]) => id).map(([id, title]) => new Option(title, `threads:${id}`));
  const code = KINDS.filter(({ id }) => id !== "unspecified").map(({ id, name }) => new Option(`${name} code`, `code:${id}`));
  const labels = processes.length < 2 ? [] : [...new Set(labelKeys().flatMap((key) => processes.map((process) => `label:${key}=${labelOf(process, key)}`)))];
  const answer = await ask("threads", [...selection().filter(([name]) => name !== "thread"), ["limit", "200"]]).catch(() => ({}));
  // An answer that was cancelled has none.
  const threads = (answer.threads || []).map((row) => new Option(`${duration(row.cpu_ns)} · ${row.kind}`, `thread:${row.thread}`));
  $("suggestions").replaceChildren(...kinds, ...code, ...labels.map((label) => new Option("", label)), ...threads);
}
