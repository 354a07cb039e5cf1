// Two views of a call tree: callees and callers.
//
// A view builds the boxes below a box when they are first needed, and the graph needs only boxes that are wide enough
// to be drawn. So the time to draw a graph does not depend on the size of the profile.

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
 * are left out, what they call stands in their place, and compilers are shown by phase. With `endsAtRoots`, as in a
 * tree of callers, functions below the first method are left out where they end a path.
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
    if (parent.isFolded) return (parent.children = []);
    const { model } = this;
    const weights = parent.weights;
    if (this.folds && isCompilerThread(parent)) return (parent.children = phasesOf(parent, model));
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

  /** Returns a test whether a marked name stands in a box or in the boxes below it. */
  pathsTo(marks) {
    const below = this.model.markedBelow(marks);
    return (of) => of.items.some((node) => below[node]);
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

  /** Returns a test whether a marked name stands in a box or in the boxes below it. */
  pathsTo(marks) {
    const above = this.model.markedAbove(marks);
    return (of) => of.items.some(({ node }) => above[node]);
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
