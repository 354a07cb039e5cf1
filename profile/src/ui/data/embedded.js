// The data of the page, from the page itself: answers the questions of the API without a server.
//
// The embedded data is a call tree in columns and samples summed by node, thread and time bucket; `query/embedded.rs`
// writes it. Answers have the form that `docs/formats.md` describes. Times are known to a bucket.

/** Returns a regular expression for names that match a pattern, in which * stands for any text. */
function formOf(pattern) {
  const parts = pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "s");
}

/** A call tree that is built node by node, in the form of an answer. */
class TreeBuilder {
  constructor(names) {
    this.names = [...names];
    this.parents = [];
    this.frame_names = [];
    this.kinds = [];
    this.self_ns = [];
    this.add(0, this.intern("all"), MARKER);
  }

  intern(name) {
    const known = this.names.indexOf(name);
    return known >= 0 ? known : this.names.push(name) - 1;
  }

  /** A new node; the root is its own parent. */
  add(parent, name, kind) {
    this.parents.push(this.parents.length - parent);
    this.frame_names.push(name);
    this.kinds.push(kind);
    this.self_ns.push(0);
    return this.parents.length - 1;
  }

  answer() {
    const { names, parents, frame_names, kinds, self_ns } = this;
    const total_ns = sumUp(self_ns, parents.map((back, node) => node - back));
    return treeAnswer({ names, parents, frame_names, kinds, self_ns, total_ns });
  }
}

function treeAnswer(tree, samples) {
  return { total_ns: tree.total_ns[0], samples, nodes_left_out: 0, left_out_ns: 0, tree };
}

/** CPU time of each node and all below it. */
function sumUp(self, parent) {
  const total = Float64Array.from(self);
  for (let node = total.length - 1; node > 0; node--) total[parent[node]] += total[node];
  return total;
}

/**
 * Merges paths into one tree. `start` has the CPU time of the nodes that the root stands for, `below(node, ns)` the
 * next nodes of a path as [node, ns], `own(node, ns)` the CPU time that goes no further. At most `most` nodes are
 * built, the heaviest of all.
 */
function mergedTree(model, { start, below, own }, most) {
  const builder = new TreeBuilder(model.names);
  const totals = [];
  const heap = new BoxHeap();
  const whole = total([...start.values()]);
  heap.push({ above: -1, total: whole, nodes: start });
  let [count, leftOut] = [0, 0];
  while (heap.boxes.length > 0) {
    const { above, name, kind, nodes, total: ns } = heap.pop();
    if (totals.length >= most) {
      count++;
      leftOut += ns;
      continue;
    }
    const at = above < 0 ? 0 : builder.add(above, name, kind);
    totals[at] = ns;
    const groups = new Map();
    for (const [node, weight] of nodes) {
      builder.self_ns[at] += own(node, weight);
      for (const [next, part] of below(node, weight)) {
        const key = model.name[next] * KINDS.length + model.kind[next];
        let group = groups.get(key);
        if (!group) groups.set(key, (group = { above: at, name: model.name[next], kind: model.kind[next], total: 0, nodes: new Map() }));
        group.total += part;
        group.nodes.set(next, (group.nodes.get(next) || 0) + part);
      }
    }
    groups.forEach((group) => heap.push(group));
  }
  const { names, parents, frame_names, kinds, self_ns } = builder;
  return { total_ns: whole, nodes_left_out: count, left_out_ns: leftOut, tree: { names, parents, frame_names, kinds, self_ns, total_ns: totals } };
}

/** Nodes whose sums take about 300 ms. */
const LARGE = 300_000;
/** Most columns of a timeline. */
const MOST_COLUMNS = 400;
/** Most nodes of a merged tree, unless a question names another number. */
const MOST_MERGED = 20_000;

class EmbeddedSource {
  constructor(data) {
    this.isEmbedded = true;
    this.usualTime = "";
    this.data = data;
    this.buckets = Math.max(1, Math.round((data.to_ns - data.from_ns) / data.bucket_ns));
    this.spanS = (data.to_ns - data.from_ns) / 1e9;
    this.model = new CallTree(data);
    /** Whether a view takes longer than a person notices. */
    this.isLarge = this.model.count > LARGE;
    /** Answers of the latest selection. */
    this.known = {};
    this.node = fromDifferences(data.samples.nodes);
    this.ns = new Float64Array(data.samples.units).map((units) => units * data.unit_ns);
  }

  /** The call tree of an answer, without reading it again if it is the tree of the page. */
  treeOf(tree) {
    return tree.parents === this.data.parents ? this.model : new CallTree(tree);
  }

  /** Answers at once, so there is nothing to cancel. */
  cancel() {}

  async ask(question, parameters) {
    const answers = {
      processes: () => this.statistics(parameters),
      statistics: () => this.statistics(parameters),
      flamegraph: () => this.flamegraph(parameters),
      callers: () => this.callers(parameters),
      callees: () => this.callees(parameters),
      lines: () => this.lines(parameters),
      methods: () => this.methods(parameters),
      threads: () => this.threads(parameters),
      timeline: () => this.timeline(parameters),
      chart: () => this.chart(parameters),
      diff: () => this.difference(parameters),
      "diff/methods": () => this.methodDifference(parameters),
    };
    return answers[question]();
  }

  // ---- Selection ----

  /** First bucket, and the bucket behind the last, of a selection. */
  range(selection) {
    const { from_ns, bucket_ns } = this.data;
    const start = this.momentNs("from", selection.get("from"), null);
    const end = this.momentNs("to", selection.get("to"), start);
    const bucketAt = (ns, otherwise, round) => {
      if (ns === null) return otherwise;
      // Times in the address are rounded: within a hundredth of a bucket from a boundary, they lie on it.
      const position = (ns - from_ns) / bucket_ns;
      const whole = Math.abs(position - Math.round(position)) < 0.01 ? Math.round(position) : round(position);
      return Math.min(Math.max(whole, 0), this.buckets);
    };
    const first = bucketAt(start, 0, Math.floor);
    return [first, Math.max(first, bucketAt(end, this.buckets, Math.ceil))];
  }

  /** The time that a parameter means; with a start, a time of day is the first one after it. */
  momentNs(name, text, start) {
    if (text === null) return null;
    const { from_ns, to_ns } = this.data;
    if (text === "now") return to_ns;
    if (/^\d+(\.\d*)?$/.test(text)) return Number(text) * 1e9;
    const ofDay = timeOfDayNs(text);
    if (ofDay !== null) return start === null ? nearest(ofDay, from_ns, to_ns) : firstAfter(ofDay, start);
    const isBack = text.startsWith("-");
    const duration = durationNs(isBack ? text.slice(1) : text);
    if (duration === null) throw new Error(`${name}: ${TIME_FORMS}`);
    return isBack ? to_ns - duration : from_ns + duration;
  }

  /** The accounts of the selected processes. */
  accounts(selection) {
    const processes = selection.getAll("process");
    const labels = selection.getAll("label").map((label) => [label.split("=")[0], label.slice(label.indexOf("=") + 1)]);
    const hasLabel = (account, [key, value]) => (key === "command" ? account.command.includes(value) : labelOf(account, key) === value);
    return this.data.statistics.filter((account) => (processes.length === 0
      || processes.some((text) => text === account.process || text === account.service || text === String(account.pid)))
      && labels.every((label) => hasLabel(account, label)));
  }

  /** For each thread whether it is selected. */
  selectedThreads(selection) {
    const threads = selection.getAll("thread");
    const kinds = wordsOf(selection, "thread_kind", THREAD_WORDS);
    const ids = new Set(this.accounts(selection).map((account) => account.process));
    return this.data.threads.map((thread) => ids.has(thread.process)
      && (threads.length === 0 || threads.some((text) => thread.thread.includes(text) || (thread.tid !== 0 && text === String(thread.tid))))
      && (kinds.length === 0 || kinds.includes(thread.kind)));
  }

  /** For each node whether samples in it are selected, by frames on the way to it and by its own kind; null for all. */
  selectedNodes(selection) {
    const [frames, includes, excludes] = ["frame", "include", "exclude"].map((name) => selection.getAll(name));
    const kinds = wordsOf(selection, "kind", FRAME_WORDS);
    if ([frames, includes, excludes, kinds].every((values) => values.length === 0)) return null;
    const { model } = this;
    const framed = this.nodesBelow((name) => frames.every((text) => name.includes(text)));
    const [included, excluded] = [includes, excludes].map((values) => {
      const forms = values.map(formOf);
      return this.nodesBelow((name) => forms.some((form) => form.test(name)));
    });
    const selected = new Uint8Array(model.count);
    for (let node = 1; node < model.count; node++) {
      const hasKind = kinds.length === 0 || kinds.includes(KINDS[model.kind[node]].id);
      const hasFrames = (frames.length === 0 || framed[node]) && (includes.length === 0 || included[node]) && !excluded[node];
      selected[node] = hasKind && hasFrames ? 1 : 0;
    }
    return selected;
  }

  /** For each node whether its name or that of a caller matches. */
  nodesBelow(isMatch) {
    const { model } = this;
    const matching = model.names.map(isMatch);
    const onPath = new Uint8Array(model.count);
    for (let node = 1; node < model.count; node++) {
      onPath[node] = onPath[model.parent[node]] || matching[model.name[node]] ? 1 : 0;
    }
    return onPath;
  }

  /** Calls `visit` with the position of each selected row of samples. */
  visit(selection, visit) {
    const [first, end] = this.range(selection);
    const threads = this.selectedThreads(selection);
    const nodes = this.selectedNodes(selection);
    const { threads: thread, buckets: bucket, states = [] } = this.data.samples;
    const wanted = wordsOf(selection, "state", STATES);
    const hasState = (row) => wanted.length === 0 || wanted.includes(states[row]);
    for (let row = 0; row < this.ns.length; row++) {
      if (bucket[row] >= first && bucket[row] < end && threads[thread[row]] && (!nodes || nodes[this.node[row]]) && hasState(row)) visit(row);
    }
  }

  /** Returns the result of `compute` for a selection; the views of one selection share it. */
  once(selection, what, compute) {
    const of = SELECTION.map((name) => selection.getAll(name).join("\n")).join("\n\n");
    if (this.known.of !== of) this.known = { of };
    return (this.known[what] ??= compute());
  }

  /** CPU time of each node itself and with all below it, and samples of each node. */
  weigh(selection) {
    return this.once(selection, "weights", () => this.weighed(selection));
  }

  weighed(selection) {
    const selfNs = new Float64Array(this.model.count);
    const samples = new Float64Array(this.model.count);
    this.visit(selection, (row) => {
      selfNs[this.node[row]] += this.ns[row];
      samples[this.node[row]] += this.data.samples.counts[row];
    });
    return { selfNs, samples, totalNs: sumUp(selfNs, this.model.parent) };
  }

  /** Selections of both sides of a comparison. */
  sides(parameters) {
    return ["before.", "after."].map((side) => new URLSearchParams(
      parameters.filter(([name]) => name.startsWith(side)).map(([name, value]) => [name.slice(side.length), value]),
    ));
  }

  // ---- Answers ----

  statistics(parameters) {
    return { processes: this.accounts(new URLSearchParams(parameters)) };
  }

  flamegraph(parameters) {
    const selection = new URLSearchParams(parameters);
    if (selection.get("by") === "thread") return this.flamegraphByThread(selection);
    const { names, parents, frame_names, kinds } = this.data;
    const { selfNs, samples, totalNs } = this.weigh(selection);
    return treeAnswer({ names, parents, frame_names, kinds, self_ns: selfNs, total_ns: totalNs }, total(samples));
  }

  /** The call tree with a node for each thread below the root. */
  flamegraphByThread(selection) {
    const { model, data } = this;
    const builder = new TreeBuilder(model.names);
    const placed = data.threads.map(() => null);
    const place = (thread, node) => {
      if (!placed[thread]) {
        const { thread: name, tid } = data.threads[thread];
        placed[thread] = new Map([[0, builder.add(0, builder.names.push(tid ? `${name} (${tid})` : name) - 1, MARKER)]]);
      }
      let at = placed[thread].get(node);
      if (at === undefined) {
        at = builder.add(place(thread, model.parent[node]), model.name[node], model.kind[node]);
        placed[thread].set(node, at);
      }
      return at;
    };
    this.visit(selection, (row) => { builder.self_ns[place(data.samples.threads[row], this.node[row])] += this.ns[row]; });
    return builder.answer();
  }

  /** The outermost nodes of a method with their CPU time. */
  nodesOf(method, totalNs) {
    const { model } = this;
    const name = model.names.indexOf(method);
    const start = new Map();
    for (let node = 1; node < model.count; node++) {
      if (model.name[node] === name && model.outermost[node] && totalNs[node] > 0) start.set(node, totalNs[node]);
    }
    return start;
  }

  /** Everything below a method, merged; the root stands for the method. */
  callees(parameters) {
    const selection = new URLSearchParams(parameters);
    const { model } = this;
    const { selfNs, totalNs } = this.weigh(selection);
    const below = (node) => {
      const next = [];
      for (let child = model.firstChild[node]; child >= 0; child = model.nextChild[child]) if (totalNs[child] > 0) next.push([child, totalNs[child]]);
      return next;
    };
    const paths = { start: this.nodesOf(selection.get("method"), totalNs), below, own: (node) => selfNs[node] };
    return mergedTree(model, paths, Number(selection.get("max_nodes") || MOST_MERGED));
  }

  /** Everything above a method: children are callers, with the CPU time spent in the method when called from there. */
  callers(parameters) {
    const selection = new URLSearchParams(parameters);
    const { parent } = this.model;
    const below = (node, ns) => (parent[node] === 0 ? [] : [[parent[node], ns]]);
    const own = (node, ns) => (parent[node] === 0 ? ns : 0);
    const paths = { start: this.nodesOf(selection.get("method"), this.weigh(selection).totalNs), below, own };
    return mergedTree(this.model, paths, Number(selection.get("max_nodes") || MOST_MERGED));
  }

  /** Methods of a selection, callers before callees; the frame that marks an incomplete stack is none. */
  methodsOf(selection) {
    return this.once(selection, "methods", () => this.summedMethods(selection));
  }

  summedMethods(selection) {
    const { model } = this;
    const weights = this.weigh(selection);
    const samples = new Float64Array(model.names.length);
    for (let node = 1; node < model.count; node++) samples[model.name[node]] += weights.samples[node];
    const rows = model.methods(weights)
      .filter(({ name }) => samples[name] > 0 || !model.names[name].startsWith("["))
      .map(({ name, self, total, depth }) => [depth, { name: model.names[name], self_ns: self, self_samples: samples[name], total_ns: total }])
      .sort(([depth, row], [otherDepth, other]) => depth - otherDepth || (row.name < other.name ? -1 : 1))
      .map(([, row]) => row);
    return { total_ns: weights.totalNs[0], samples: total(samples), methods: rows };
  }

  methods(parameters) {
    const selection = new URLSearchParams(parameters);
    const answer = this.methodsOf(selection);
    const isTotal = selection.get("order") === "total";
    // Rows that are equal keep their order.
    const ordered = [...answer.methods].sort((a, b) => (isTotal ? 0 : b.self_ns - a.self_ns) || b.total_ns - a.total_ns);
    return { ...answer, ...this.limited("methods", ordered, selection) };
  }

  limited(name, rows, selection) {
    const limit = Number(selection.get("limit") || 100);
    return { [name]: rows.slice(0, limit), rows_left_out: Math.max(0, rows.length - limit) };
  }

  threads(parameters) {
    const selection = new URLSearchParams(parameters);
    const ns = new Float64Array(this.data.threads.length);
    this.visit(selection, (row) => { ns[this.data.samples.threads[row]] += this.ns[row]; });
    const rows = this.data.threads.map((thread, index) => ({ ...thread, cpu_ns: ns[index] })).filter(({ cpu_ns }) => cpu_ns > 0);
    rows.sort((a, b) => b.cpu_ns - a.cpu_ns || (a.thread < b.thread ? -1 : 1));
    return { total_ns: total(ns), ...this.limited("threads", rows, selection) };
  }

  timeline(parameters) {
    const selection = new URLSearchParams(parameters);
    const { from_ns, threads, samples } = this.data;
    const { bucket_ns, buckets, first, count, timeOf } = this.columns(selection);
    const byThread = selection.get("by") === "thread";
    const label = /^label:(.+)$/.exec(selection.get("by"))?.[1];
    const groups = new Map(label ? this.data.statistics.map((account) => [account.process, labelOf(account, label)]) : []);
    const rows = new Map();
    this.visit(selection, (position) => {
      const thread = threads[samples.threads[position]];
      const group = (label && groups.get(thread.process)) || "";
      const key = label ? group : byThread ? thread : thread.process;
      let row = rows.get(key);
      if (!row) rows.set(key, (row = { group, process: label ? "" : thread.process, thread: byThread ? thread.thread : "", kind: thread.kind, cpu_ns: new Array(count).fill(0) }));
      row.cpu_ns[Math.floor((samples.buckets[position] - first) / buckets)] += this.ns[position];
    });
    const ordered = [...rows.values()].sort((a, b) => total(b.cpu_ns) - total(a.cpu_ns));
    const shown = this.limited("rows", ordered, selection);
    const leftOut = total(ordered.slice(shown.rows.length).map((row) => total(row.cpu_ns)));
    return { from_ns: timeOf(0), to_ns: timeOf(count), bucket_ns, ...shown, left_out_ns: leftOut };
  }

  /** The columns of a timeline, each of which has so many buckets. */
  columns(selection) {
    const { from_ns, bucket_ns } = this.data;
    const [first, end] = this.range(selection);
    const least = (end - first) / MOST_COLUMNS;
    const buckets = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((width) => width >= least) || Math.ceil(least);
    const timeOf = (column) => from_ns + Math.min(first + column * buckets, end) * bucket_ns;
    return { bucket_ns: buckets * bucket_ns, buckets, first, count: Math.ceil((end - first) / buckets), timeOf };
  }

  /** The samples of a selection in the order of time. */
  chart(parameters) {
    const rows = [];
    const { threads: thread, buckets } = this.data.samples;
    this.visit(new URLSearchParams(parameters), (row) => rows.push([this.node[row], thread[row], buckets[row], this.ns[row]]));
    const { from_ns, bucket_ns, threads } = this.data;
    return { from_ns, bucket_ns, threads, model: this.model, rows };
  }

  /** The heaviest lines of a method, of all samples in the page. */
  lines(parameters) {
    const method = new URLSearchParams(parameters).get("method");
    const known = this.data.methods.find(({ name }) => this.model.names[name] === method);
    this.wholeNs ??= total(this.ns);
    if (!known) return { total_ns: this.wholeNs, method: { method, lines: [] } };
    const lines = known.lines.map(([line, self_ns, total_ns]) => ({ line, self_ns, total_ns }));
    return { total_ns: this.wholeNs, method: { ...known, method, class: method.slice(0, method.lastIndexOf(".")), lines } };
  }

  difference(parameters) {
    const [before, after] = this.sides(parameters).map((side) => this.weigh(side).totalNs);
    const { names, parents, frame_names, kinds } = this.data;
    return {
      spans: { before_total_ns: before[0], after_total_ns: after[0] },
      nodes_left_out: 0,
      left_out_ns: 0,
      tree: { names, parents, frame_names, kinds, before_ns: [...before], after_ns: [...after] },
    };
  }

  methodDifference(parameters) {
    const sides = this.sides(parameters).map((side) => this.methodsOf(side));
    const rows = new Map();
    sides.forEach((side, index) => {
      for (const { name, self_ns } of side.methods) {
        if (!rows.has(name)) rows.set(name, [0, 0]);
        rows.get(name)[index] = self_ns;
      }
    });
    const share = (ns, side) => ns / (sides[side].total_ns || 1);
    const methods = [...rows].map(([name, [before_ns, after_ns]]) => {
      const [before_share, after_share] = [share(before_ns, 0), share(after_ns, 1)];
      return { name, before_ns, after_ns, before_share, after_share, change: after_share - before_share };
    });
    methods.sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || (a.name < b.name ? -1 : 1));
    return this.limited("methods", methods, new URLSearchParams(parameters));
  }
}

const source = new EmbeddedSource(JSON.parse(document.getElementById("data").textContent));
