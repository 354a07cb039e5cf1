// The account of CPU time of each process, and what profiling it cost.

/** Meanings of causes of losses and stop reasons. Others are shown by name. */
const MEANINGS = {
  queue_full: "The queue of the thread was full when its timer expired",
  pool_exhausted: "No memory was left for a copy of the stack",
  not_chosen: "The options threads and skipthreads leave these threads out",
  no_timer: "The thread had no timer: the system's limit of timers was reached",
  no_java_stack: "Threads of which the JVM gives no stack traces: GC, compiler and native threads (mode=jvmti)",
  no_java_frames: "A Java thread without Java code on its stack at the safepoint (mode=jvmti)",
  not_received: "The agent sent the samples, but they did not arrive here",
  stopping: "The thread ended, or the profiler was stopping",
  bad_context: "The kernel gave no usable registers",
  end_of_stack: "The whole stack was walked",
  end_of_continuation: "The whole stack of a virtual thread was walked",
  end_past_thaw: "The stack of a virtual thread was walked to its root; its newest frames were on their way back from the heap",
  not_java: "A thread without Java code was walked to its end",
  depth_limit: "The stack is deeper than the limit; callers are missing",
  unreadable: "Memory that the walk needed could not be read; callers are missing",
};
/** Stop reasons of stacks that begin at their root. */
const COMPLETE_STACKS = new Set(["end_of_stack", "end_of_continuation", "end_past_thaw", "not_java"]);

const spaced = (cause) => cause.replaceAll("_", " ");
const samplesOf = (count) => `${number(count)} sample${count === 1 ? "" : "s"}`;

/** Rows [title, value, tooltip, className]; rows without a value are left out. */
function rowsOf(rows) {
  const made = element("dl");
  for (const [title, value, hint, className] of rows) {
    if (value === null || value === undefined) continue;
    const term = element("dt", "", title);
    if (hint) term.title = hint;
    made.append(term, element("dd", className || "", value instanceof Node ? value : String(value)));
  }
  return made;
}

/** Median, 99th percentile and maximum of a distribution. */
function spread(of, show) {
  return of.count > 0 ? `${show(of.p50)} · ${show(of.p99)} · ${show(of.max)}` : "none yet";
}

/** Time of threads that the user left out, which is no loss. */
const leftOut = (account) => account.lost_ns.not_chosen || 0;

/** Time that should have samples and has none. */
const lostOf = (account) => total(Object.values(account.lost_ns)) - leftOut(account);

/** Time by outcome: [title, ns, colour, tooltip]. */
function accountParts(account) {
  return [
    ["sampled", account.sampled_ns, isAccounted(account) ? "var(--good)" : "var(--before)", `${timeOf(account)} that samples stand for`],
    ["lost", lostOf(account), "var(--bad)", `${timeOf(account)} whose samples were lost, by cause below`],
    ...(leftOut(account) > 0 ? [["not chosen", leftOut(account), "var(--before)", MEANINGS.not_chosen]] : []),
    ["unfinished periods", account.unfinished_ns, "var(--open)", `${timeOf(account)} since the last expiration of each thread's timer: less than an interval per thread, or two of wall time`],
    ["before timers ran", account.before_timer_ns, "var(--before)", "CPU time of threads before they were profiled, including the start of the JVM"],
    ["profiler", account.mode === "wall" ? 0 : account.sampler_cpu_ns, "var(--before)", "CPU time of the profiler's own threads"],
    ["outside the accounts", account.outside_ns, "var(--before)", "CPU time of the process in no thread's account: ends of threads after their timers were deleted, and threads that ended before they were found"],
  ];
}

function accountBar(parts) {
  const bar = element("div", "account-bar", ...parts.filter(([, ns]) => ns > 0).map(([title, ns, colour]) => {
    const part = element("i");
    part.style.cssText = `flex: ${ns} 0 0; background: ${colour}`;
    part.title = `${title}: ${duration(ns)}`;
    return part;
  }));
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map(([title, ns]) => `${title} ${duration(ns)}`).join(", "));
  return bar;
}

function section(title, hint, rows) {
  const head = element("h4", "", title);
  if (hint) head.append(element("small", "", hint));
  return [head, rowsOf(rows)];
}

function accountSections(account) {
  const parts = accountParts(account);
  const whole = total(parts.map(([, ns]) => ns)) || 1;
  const causes = Object.entries(account.lost_ns).filter(([cause, ns]) => ns > 0 && cause !== "not_chosen").sort((a, b) => b[1] - a[1]);
  const verdict = isAccounted(account)
    ? [element("b", "", percent(account.explained)), ` of ${timeOf(account)} is explained by samples`]
    : [element("b", "", "–"), ` no statistics of ${timeOf(account)} were received yet`];
  return [
    element("div", `verdict ${isDoubtful(account) ? "doubt" : ""}`, ...verdict),
    accountBar(parts),
    rowsOf(parts.map(([title, ns, colour, hint]) => [swatched(title, colour), `${duration(ns)} · ${percent(ns / whole)}`, hint])),
    ...section("Lost, by cause", "", causes.length > 0
      ? causes.map(([cause, ns]) => [spaced(cause), `${duration(ns)} · ${samplesOf(account.lost_samples[cause] || 0)}`, MEANINGS[cause], "bad"])
      : [["nothing was lost", ""]]),
  ];
}

function coverageSection(account) {
  // After the end there are no timers left.
  const timers = account.state === "ended" ? null : account.timers;
  const untimed = account.lost_ns.no_timer || 0;
  const isCovered = timers && timers.with_timer >= timers.threads;
  return section("Coverage", "", [
    ["threads without a timer", timers ? null : untimed > 0 ? `${duration(untimed)} lost` : "none", MEANINGS.no_timer, untimed > 0 ? "bad" : ""],
    ["threads with a timer", timers ? `${number(timers.with_timer)} of ${number(timers.threads)}` : null, "When the last statistics were sent; the other threads wait for a timer, or their CPU time is counted as lost", timers && !isCovered ? "bad" : ""],
    ["timers handed on", account.timers?.turns > 0 ? number(account.timers.turns) : null, "How often a timer passed from one thread to another, because there are too few timers"],
    ["threads beyond the limit", account.timers?.without_slot > 0 ? number(account.timers.without_slot) : null, "More threads than can be profiled at once", "bad"],
    ["samples of requests", `${number(account.samples)} of ${number(account.requests)}`, "Samples that arrived here, of the stacks that were captured"],
    ["biased samples", account.biased == null ? null : `${number(account.biased)} · ${percent(account.biased / (account.requests || 1))}`, "Samples whose newest Java frame is that of a later point, because the compiled code does not tell which line was running"],
    ["mode", account.mode, "What samples stand for, and how they are taken"],
    ["interval", duration(account.interval_ns), `wanted ${timeOf(account)} of a thread between two samples`],
    ["messages missing", number(account.missing_messages), "Sent by the agent, not received", account.missing_messages > 0 ? "bad" : ""],
    ["samples without names", number(account.unknown_samples), "Samples whose stacks were not described", account.unknown_samples > 0 ? "bad" : ""],
  ]);
}

function stopsSection(account) {
  const walks = total(Object.values(account.stops)) || 1;
  const stops = Object.entries(account.stops).sort((a, b) => b[1] - a[1]);
  return section("Why walks ended", "", stops.map(([stop, count]) => [spaced(stop), `${number(count)} · ${percent(count / walks)}`, MEANINGS[stop]]));
}

function costSections(account) {
  return [
    ...section("Cost of profiling", "median · 99 % · maximum", [
      ["signal handler, cycles", spread(account.handler_cycles, number), "Cycles of the time stamp counter on the profiled thread for each sample"],
      ["walk of a stack", spread(account.walk_ns, microseconds), "On the sampler thread"],
      ["drain of all queues", spread(account.drain_ns, microseconds), "On the sampler thread"],
      ["threads of the profiler", `${duration(account.sampler_cpu_ns)} · ${percent(account.sampler_cpu_ns / (account.process_cpu_ns || 1))} of the process`, "CPU time of the profiler's own threads"],
    ]),
    ...section("Memory of the agent", "", [
      ["queues", bytes(account.queue_bytes), "Request queues that have held requests"],
      ["queues grown", number(account.queue_grown), "How often a queue was replaced by a larger one"],
      ["most requests in a queue", number(account.queue_high_water), "At one drain"],
      ["snapshot pool", `up to ${bytes(account.pool_bytes)}`, "Room for copies of stacks; what was never used takes no memory"],
      ["pool exhausted", number(account.pool_exhausted), "Samples for which the pool had no memory", account.pool_exhausted > 0 ? "bad" : ""],
    ]),
  ];
}

function card(account) {
  const end = account.end ? ` (${spaced(account.end)})` : "";
  const made = element("section", "card",
    element("h3", "", nameOf(account)),
    element("p", "", `${account.host} · pid ${account.pid} · JDK ${account.jvm} · ${account.state}${end}`),
    // The columns are as wide as a card where there is space for several.
    element("div", "card-columns",
      element("div", "", ...accountSections(account)),
      element("div", "", ...coverageSection(account), ...stopsSection(account)),
      element("div", "", ...costSections(account))));
  made.title = account.command;
  return made;
}

async function statisticsView(isCurrent, surroundings) {
  const processes = selection().filter(([name]) => name === "process" || name === "label");
  const [answer] = await Promise.all([ask("statistics", [...timeOfProcesses(), ...processes]), surroundings]);
  if (!isCurrent()) return;
  const cards = answer.processes.map(card);
  const single = cards.length === 1 ? " single" : "";
  putContent("statistics", cards.length > 0 ? element("div", "pane", element("div", `cards${single}`, ...cards)) : nothing("No process matches."));
}
