// The call tree behind a flame graph, and its two views: callees and callers.
//
// A view builds the boxes below a box when they are first needed, and the graph needs only boxes that are wide enough
// to be drawn. So the time to open a page does not depend on the size of the profile.

/** Kinds of frames by their number in the protocol. */
const KINDS = [
  { id: "unspecified", name: "Java", hue: 95, saturation: 38 },
  { id: "interpreted", name: "Interpreted", hue: 28, saturation: 78 },
  { id: "c1", name: "C1 compiled", hue: 62, saturation: 52 },
  { id: "c2", name: "C2 compiled", hue: 132, saturation: 38 },
  { id: "inlined", name: "Inlined", hue: 178, saturation: 40 },
  { id: "native_method", name: "Native method", hue: 208, saturation: 58 },
  { id: "stub", name: "Stub", hue: 262, saturation: 44 },
  { id: "native", name: "Native library", hue: 340, saturation: 50 },
  { id: "vm", name: "JVM", hue: 4, saturation: 58 },
  { id: "marker", name: "Marker", hue: 220, saturation: 8 },
  { id: "jvmci", name: "JVMCI compiled", hue: 146, saturation: 46 },
];
const MARKER = 9;

/** A call tree in columns: node 0 is the root, a parent comes before its children. */
class CallTree {
  /** Columns of an answer: `parents` are distances back to the parent. */
  constructor({ names, parents, frame_names: name, kinds: kind }) {
    const count = parents.length;
    this.names = names;
    this.count = count;
    this.name = Int32Array.from(name);
    this.kind = Uint8Array.from(kind);
    this.parent = new Int32Array(count);
    this.firstChild = new Int32Array(count).fill(-1);
    this.nextChild = new Int32Array(count).fill(-1);
    for (let node = 1; node < count; node++) {
      const parent = node - parents[node];
      this.parent[node] = parent;
      this.nextChild[node] = this.firstChild[parent];
      this.firstChild[parent] = node;
    }
  }

  /** Marks the names that contain `text` or match `/a regular expression/`; null if the expression is not valid. */
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
      const lower = text.toLowerCase();
      this.lower ||= this.names.map((name) => name.toLowerCase());
      return Uint8Array.from(this.lower, (name) => (name.includes(lower) ? 1 : 0));
    }
    return Uint8Array.from(this.names, (name) => (test(name) ? 1 : 0));
  }

  /** Marks the nodes without an ancestor of the same name. The sum of their totals counts a recursion once. */
  get outermost() {
    return (this.outermostNodes ||= this.findOutermost());
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

  /** Self and total CPU time by name, and the least depth of its nodes, as { name, self, total, depth }. */
  methods(weights) {
    const self = new Float64Array(this.names.length);
    const total = new Float64Array(this.names.length);
    const depth = new Float64Array(this.names.length).fill(Infinity);
    const depths = new Int32Array(this.count);
    for (let node = 1; node < this.count; node++) {
      depths[node] = depths[this.parent[node]] + 1;
      if (weights.totalNs[node] === 0) continue;
      depth[this.name[node]] = Math.min(depth[this.name[node]], depths[node]);
      self[this.name[node]] += weights.selfNs[node];
      if (this.outermost[node]) total[this.name[node]] += weights.totalNs[node];
    }
    const rows = [];
    total.forEach((ns, name) => ns > 0 && rows.push({ name, self: self[name], total: ns, depth: depth[name] }));
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

/** A box of a view. Frames of one name below one parent share a box, interpreted or compiled. */
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

/** Whether a name, with or without parameters, is a function below the first method of every thread. */
const isRootName = (name) => ROOTS.has(name.split("(")[0]);

/**
 * The view from the thread entry to the running methods. With `folds`, functions below the first method of a thread
 * are left out, and what they call stands in their place. With `endsAtRoots`, as in a tree of callers, they are left
 * out where they end a path.
 */
class CalleeView {
  constructor(model, weights, folds = false, endsAtRoots = false) {
    this.model = model;
    this.folds = folds;
    this.endsAtRoots = endsAtRoots;
    /** Boxes stand in the order of their names, so that they keep their places when new samples arrive. */
    this.isByName = true;
    this.root = box(null, "all", -1, MARKER, weights);
    add(this.root, 0, MARKER, weights.total(0), weights.self(0));
  }

  children(parent) {
    if (parent.children) return parent.children;
    const { model } = this;
    const weights = parent.weights;
    // The box of a folded root has its own time only.
    if (this.folds && parent.name >= 0 && parent.total === parent.self) return (parent.children = []);
    const byName = new Map();
    // Below the root, or a thread or reason at the root, stand the roots of threads.
    const folds = this.folds && (parent === this.root || (parent.parent === this.root && parent.kind === MARKER));
    const items = [...parent.items];
    while (items.length > 0) {
      const item = items.pop();
      for (let node = model.firstChild[item]; node >= 0; node = model.nextChild[node]) {
        const total = weights.total(node);
        if (total === 0) continue;
        if (this.endsAtRoots && isRootName(model.names[model.name[node]])) continue;
        if (folds && isRootName(model.names[model.name[node]])) {
          items.push(node);
          // Its own time has no other box.
          if (weights.self(node) === 0) continue;
          add(named(byName, parent, model, node), node, model.kind[node], weights.self(node), weights.self(node));
        } else add(named(byName, parent, model, node), node, model.kind[node], total, weights.self(node));
      }
    }
    return (parent.children = heaviestFirst(byName));
  }

  /** CPU time of a box by kind of its own frames. */
  kinds(of) {
    return byKind(of.items.map((node) => [this.model.kind[node], of.weights.total(node)]));
  }
}

/**
 * The view from the running methods to their callers, the heaviest first. The CPU time of an item is that of the node
 * `own` itself. If the tree has a node for each thread below its root, `byThread` keeps these boxes below the root.
 * With `folds`, callers end before the functions below the first method of a thread.
 */
class CallerView {
  constructor(model, weights, byThread = false, folds = false) {
    this.model = model;
    const isEnd = byThread ? (node) => node === 0 || model.parent[node] === 0 : (node) => node === 0;
    /** Callers end before this node. A running method is shown even if it is a root. */
    this.isEnd = (node, isLeaf) => isEnd(node) || (folds && !isLeaf && isRootName(model.names[model.name[node]]));
    this.root = box(null, "all", -1, MARKER, weights);
    const threads = new Map();
    const thread = new Int32Array(model.count);
    for (let node = 1; node < model.count; node++) {
      thread[node] = model.parent[node] === 0 ? node : thread[model.parent[node]];
      const ns = weights.selfNs[node];
      if (!(ns > 0)) continue;
      const item = { node, own: node, leaf: true, ns };
      add(this.root, item, MARKER, ns, 0);
      if (byThread) add(named(threads, this.root, model, thread[node]), item, MARKER, ns, 0);
    }
    if (byThread) this.root.children = heaviestFirst(threads);
  }

  children(parent) {
    if (parent.children) return parent.children;
    const { model } = this;
    const byName = new Map();
    for (const { node, own, leaf, ns } of parent.items) {
      const next = leaf ? node : model.parent[node];
      if (this.isEnd(next, leaf)) continue;
      add(named(byName, parent, model, next), { node: next, own, leaf: false, ns }, model.kind[next], ns, leaf ? ns : 0);
    }
    return (parent.children = heaviestFirst(byName));
  }

  kinds(of) {
    return byKind(of.items.map(({ node, ns }) => [this.model.kind[node], ns]));
  }
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
