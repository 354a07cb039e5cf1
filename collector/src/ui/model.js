// The profile behind the page: a call tree in columns, weighed for a selection of threads.
//
// A view (callees or callers) is expanded lazily, a box at a time: only what is wide enough to be drawn is ever
// built, so that the page opens at once however large the profile is.

/** Kinds of frames by their number in the protocol. */
const KINDS = [
  { name: "Unknown", hue: 220, saturation: 6 },
  { name: "Interpreted", hue: 28, saturation: 78 },
  { name: "C1 compiled", hue: 62, saturation: 52 },
  { name: "C2 compiled", hue: 132, saturation: 38 },
  { name: "Inlined", hue: 178, saturation: 40 },
  { name: "Native method", hue: 208, saturation: 58 },
  { name: "Stub", hue: 262, saturation: 44 },
  { name: "Native library", hue: 340, saturation: 50 },
  { name: "JVM", hue: 4, saturation: 58 },
  { name: "Marker", hue: 220, saturation: 8 },
];
const MARKER = 9;

/** A call tree in columns: node 0 is the root, a parent comes before its children. */
class Model {
  /** `steps` lead from each node but the root back to its parent; `name` and `kind` have an entry for every node. */
  constructor(names, steps, name, kind) {
    const count = steps.length + 1;
    this.names = names;
    this.count = count;
    this.name = name;
    this.kind = kind;
    this.parent = new Int32Array(count);
    this.firstChild = new Int32Array(count).fill(-1);
    this.nextChild = new Int32Array(count).fill(-1);
    for (let node = 1; node < count; node++) {
      const parent = node - steps[node - 1];
      this.parent[node] = parent;
      this.nextChild[node] = this.firstChild[parent];
      this.firstChild[parent] = node;
    }
  }

  /** For each name whether `text`, or `/a regular expression/`, is in it; null if the expression is none. */
  marks(text) {
    let test;
    if (/^\/.+\/$/.test(text)) {
      try {
        const pattern = new RegExp(text.slice(1, -1), "i");
        test = (name) => pattern.test(name);
      } catch {
        return null;
      }
    } else {
      const wanted = text.toLowerCase();
      this.lower ||= this.names.map((name) => name.toLowerCase());
      return Uint8Array.from(this.lower, (name) => (name.includes(wanted) ? 1 : 0));
    }
    return Uint8Array.from(this.names, (name) => (test(name) ? 1 : 0));
  }

  /** Nodes with no ancestor of the same name: their totals add up without counting recursion twice. */
  get outermost() {
    return (this.knownOutermost ||= this.findOutermost());
  }

  findOutermost() {
    const outermost = new Uint8Array(this.count);
    const open = new Int32Array(this.names.length);
    const visit = [0];
    while (visit.length > 0) {
      const node = visit.pop();
      if (node < 0) {
        open[this.name[~node]]--;
        continue;
      }
      if (node > 0) {
        outermost[node] = open[this.name[node]] === 0 ? 1 : 0;
        open[this.name[node]]++;
        visit.push(~node);
      }
      for (let child = this.firstChild[node]; child >= 0; child = this.nextChild[child]) visit.push(child);
    }
    return outermost;
  }

  /** Self and total CPU time by name, as { name, self, total }. */
  methods(weights) {
    const self = new Float64Array(this.names.length);
    const total = new Float64Array(this.names.length);
    for (let node = 1; node < this.count; node++) {
      if (weights.totalNs[node] === 0) continue;
      self[this.name[node]] += weights.selfNs[node];
      if (this.outermost[node]) total[this.name[node]] += weights.totalNs[node];
    }
    const rows = [];
    total.forEach((ns, name) => ns > 0 && rows.push({ name, self: self[name], total: ns }));
    return rows;
  }

  /** CPU time of samples with a matching name anywhere on the stack. */
  matched(weights, matches) {
    const hit = new Uint8Array(this.count);
    let ns = 0;
    for (let node = 1; node < this.count; node++) {
      hit[node] = hit[this.parent[node]] | matches[this.name[node]];
      if (hit[node]) ns += weights.selfNs[node];
    }
    return ns;
  }

  /** CPU time by kind of the running code. */
  selfByKind(weights) {
    const ns = new Float64Array(KINDS.length);
    for (let node = 1; node < this.count; node++) ns[this.kind[node]] += weights.selfNs[node];
    return ns;
  }
}

/** The model of a page that holds its samples, thread by thread. */
class ProfileModel extends Model {
  constructor(data) {
    const name = Int32Array.from([0, ...data.node_frames], (frame, node) => data.frame_names[node === 0 ? 0 : frame]);
    const kind = Uint8Array.from([0, ...data.node_frames], (frame, node) => (node === 0 ? MARKER : data.frame_kinds[frame]));
    super(data.names, data.parents, name, kind);
    this.data = data;
    const carried = data.summary.virtual_threads.map((thread) => ({ ...thread, kind: "virtual", tid: thread.carriers.join(", ") }));
    // What a thread's own samples stand for: the account of a carrier includes what it carried.
    const own = new Float64Array(data.summary.threads.length + carried.length);
    data.sample_threads.forEach((thread, i) => { own[thread] += data.sample_ns[i]; });
    this.threads = [...data.summary.threads, ...carried].map((thread, i) => ({ ...thread, sampled_ns: own[i] }));
    let node = 0;
    this.sampleNode = data.sample_nodes.map((step) => (node += step));
  }

  /** CPU time of every node from the threads that `includes` accepts. */
  weigh(includes) {
    const self = new Float64Array(this.count);
    const { sample_threads: threads, sample_ns: ns } = this.data;
    for (let i = 0; i < ns.length; i++) if (includes(threads[i])) self[this.sampleNode[i]] += ns[i];
    const total = Float64Array.from(self);
    for (let node = this.count - 1; node > 0; node--) total[this.parent[node]] += total[node];
    return { self: (node) => self[node], total: (node) => total[node], selfNs: self, totalNs: total };
  }

  /** As `weigh` for a single thread, sparse, for views that show many threads at once. */
  weighThread(thread) {
    const self = new Map();
    const total = new Map();
    const { sample_threads: threads, sample_ns: ns } = this.data;
    for (let i = 0; i < ns.length; i++) {
      if (threads[i] !== thread) continue;
      let node = this.sampleNode[i];
      self.set(node, (self.get(node) || 0) + ns[i]);
      for (;; node = this.parent[node]) {
        total.set(node, (total.get(node) || 0) + ns[i]);
        if (node === 0) break;
      }
    }
    return { self: (node) => self.get(node) || 0, total: (node) => total.get(node) || 0, leaves: self };
  }
}

/** A box of a view; boxes of one name below one parent are one box, however their code ran. */
function box(parent, label, name, kind, weights) {
  return {
    parent, label, name, kind, weights, total: 0, self: 0, heaviest: 0, items: [], children: null,
    depth: parent ? parent.depth + 1 : 0,
  };
}

function add(target, item, kind, total, self) {
  target.items.push(item);
  target.total += total;
  target.self += self;
  if (total > target.heaviest) {
    target.heaviest = total;
    target.kind = kind;
  }
}

/** From the root of the stacks to the running methods. */
class CalleeView {
  constructor(model, weights) {
    this.model = model;
    this.root = box(null, "all", -1, MARKER, weights);
    add(this.root, 0, MARKER, weights.total(0), weights.self(0));
  }

  static splitByThread(model, threads) {
    const view = new CalleeView(model, { total: () => 0, self: () => 0 });
    view.root.children = threadBoxes(view.root, model, threads, (thread, weights) => {
      add(thread, 0, MARKER, weights.total(0), 0);
    });
    return view;
  }

  children(parent) {
    if (parent.children) return parent.children;
    const { model } = this;
    const weights = parent.weights;
    const byName = new Map();
    for (const item of parent.items) {
      for (let node = model.firstChild[item]; node >= 0; node = model.nextChild[node]) {
        const total = weights.total(node);
        if (total === 0) continue;
        add(named(byName, parent, model, node), node, model.kind[node], total, weights.self(node));
      }
    }
    return (parent.children = heaviestFirst(byName));
  }

  /** CPU time of a box by kind of its own frames. */
  kinds(of) {
    return byKind(of.items.map((node) => [this.model.kind[node], of.weights.total(node)]));
  }
}

/** From the running methods to those that called them; an item's CPU time is that of the node `own` itself. */
class CallerView {
  constructor(model, weights) {
    this.model = model;
    this.root = box(null, "all", -1, MARKER, weights);
    for (let node = 1; node < model.count; node++) {
      const ns = weights.selfNs[node];
      if (ns > 0) add(this.root, { node, own: node, leaf: true, ns }, MARKER, ns, 0);
    }
  }

  static splitByThread(model, threads) {
    const view = new CallerView(model, { selfNs: new Float64Array(model.count) });
    view.root.children = threadBoxes(view.root, model, threads, (thread, weights) => {
      for (const [node, ns] of weights.leaves) add(thread, { node, own: node, leaf: true, ns }, MARKER, ns, 0);
    });
    return view;
  }

  children(parent) {
    if (parent.children) return parent.children;
    const { model } = this;
    const byName = new Map();
    for (const { node, own, leaf, ns } of parent.items) {
      const next = leaf ? node : model.parent[node];
      if (next === 0) continue;
      add(named(byName, parent, model, next), { node: next, own, leaf: false, ns }, model.kind[next], ns, leaf ? ns : 0);
    }
    return (parent.children = heaviestFirst(byName));
  }

  kinds(of) {
    return byKind(of.items.map(({ node, ns }) => [this.model.kind[node], ns]));
  }
}

function threadBoxes(root, model, threads, fill) {
  const boxes = threads.map((index) => {
    const weights = model.weighThread(index);
    const { name, tid } = model.threads[index];
    const thread = box(root, `${name} (${tid})`, -1, MARKER, weights);
    fill(thread, weights);
    thread.kind = MARKER;
    root.total += thread.total;
    return thread;
  });
  return boxes.filter((thread) => thread.total > 0).sort((a, b) => b.total - a.total);
}

function named(byName, parent, model, node) {
  const name = model.name[node];
  let child = byName.get(name);
  if (!child) byName.set(name, (child = box(parent, model.names[name], name, model.kind[node], parent.weights)));
  return child;
}

function heaviestFirst(byName) {
  return [...byName.values()].sort((a, b) => b.total - a.total || (a.label < b.label ? -1 : 1));
}

function byKind(pairs) {
  const ns = new Float64Array(KINDS.length);
  for (const [kind, weight] of pairs) ns[kind] += weight;
  return ns;
}

// Numbers as people read them, as in the command line's reports.
function duration(ns) {
  const s = ns / 1e9;
  if (s >= 10) return `${s.toFixed(1)} s`;
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (ns >= 1e8 || ns === 0) return `${(ns / 1e6).toFixed(0)} ms`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e6).toFixed(3)} ms`;
}

function percent(share) {
  const value = share * 100;
  if (value > 99.9 && share < 1) return "99.9 %";
  if (value < 0.05 && share > 0) return "<0.1 %";
  return `${value.toFixed(1)} %`;
}

function bytes(count) {
  return count >= 1 << 20 ? `${(count / (1 << 20)).toFixed(1)} MB` : `${(count / 1024).toFixed(1)} KB`;
}
