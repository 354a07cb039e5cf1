// The view of one thread in the order of time. A box is a method that one sample after the other had on the stack; a
// long time without a sample is a gap.

/** Distances between samples that make a gap, as a multiple of the usual one. */
const GAP = 4;

/** The usual distance between two samples: half of them are nearer to the one before. */
function usualDistance(spans) {
  const distances = spans.slice(1).map(({ to }, index) => to - spans[index].to).sort((a, b) => a - b);
  return distances[distances.length >> 1] || 0;
}

/**
 * Samples as spans of time from the start of the chart. A sample stands for the CPU time that ends with it, and begins
 * at the earliest where the one before ends. Samples of one bucket have no order: the heaviest comes first.
 */
function spansOf(rows, bucketNs, pathOf) {
  const spans = [];
  const ordered = [...rows].sort((a, b) => a.bucket - b.bucket || b.ns - a.ns);
  let last = 0;
  for (let first = 0; first < ordered.length;) {
    let end = first;
    while (end < ordered.length && ordered[end].bucket === ordered[first].bucket) end++;
    const together = ordered.slice(first, end);
    const whole = total(together.map(({ ns }) => ns));
    const to = (ordered[first].bucket + 1) * bucketNs;
    let from = Math.max(last, to - whole);
    const stretch = (to - from) / whole;
    for (const { node, ns } of together) {
      spans.push({ from, to: from + ns * stretch, ns, node, path: pathOf(node) });
      from += ns * stretch;
    }
    last = to;
    first = end;
  }
  return spans;
}

class ChartView {
  /** Rows are { node, bucket, ns } of an answer; with `folds`, paths begin with the first method of the thread. */
  constructor({ model, from_ns: fromNs, bucket_ns: bucketNs }, rows, label, folds) {
    Object.assign(this, { model, fromNs });
    /** Boxes are sorted by time; a gap between two of them is a box, too. */
    this.isInTime = true;
    const paths = new Map();
    const pathOf = (node) => {
      if (!paths.has(node)) paths.set(node, this.pathTo(node, folds));
      return paths.get(node);
    };
    this.spans = spansOf(rows, bucketNs, pathOf);
    /** The longest time between two samples that a box covers. */
    this.gapNs = Math.max(bucketNs, GAP * usualDistance(this.spans));
    const from = this.spans[0]?.from ?? 0;
    this.root = this.boxOf(null, label, { from, to: this.spans.at(-1)?.to ?? from, first: 0, end: this.spans.length });
  }

  /** The nodes from the root to a node. */
  pathTo(node, folds) {
    const { model } = this;
    const path = [];
    for (let at = node; at !== 0; at = model.parent[at]) path.unshift(at);
    if (!folds) return path;
    const isMarker = (at) => model.kind[at] === MARKER;
    const first = path.findIndex((at) => !isMarker(at) && !isRootName(model.names[model.name[at]]));
    return first < 0 ? path : [...path.slice(0, first).filter(isMarker), ...path.slice(first)];
  }

  /** A box for the spans from `first` to the one before `end`. */
  boxOf(parent, label, { from, to, first, end, node }) {
    const [name, kind] = node === undefined ? [-1, MARKER] : [this.model.name[node], this.model.kind[node]];
    return { ...box(parent, label, name, kind, null), total: to - from, from, to, first, end };
  }

  children(parent) {
    if (parent.children) return parent.children;
    const { model, spans } = this;
    const { depth } = parent;
    const children = [];
    let at = parent.from;
    for (let first = parent.first; first < parent.end;) {
      const node = spans[first].path[depth];
      let end = first + 1;
      if (node !== undefined) {
        const isSame = ({ path, from }, before) => path[depth] !== undefined && model.name[path[depth]] === model.name[node] && from - before.to <= this.gapNs;
        while (end < parent.end && isSame(spans[end], spans[end - 1])) end++;
        const { from } = spans[first];
        const { to } = spans[end - 1];
        if (from > at) children.push({ ...box(parent, "", -1, MARKER, null), total: from - at, isGap: true, first, end: first });
        children.push(this.boxOf(parent, model.names[model.name[node]], { from, to, first, end, node }));
        at = to;
      }
      first = end;
    }
    return (parent.children = children);
  }

  /** A box as text for the address: its depth, and the middle of its time in seconds since the epoch. */
  textOf({ depth, from, to }) {
    return depth > 0 ? `${depth}@${((this.fromNs + (from + to) / 2) / 1e9).toFixed(6)}` : "";
  }

  /** The box that a text names, or the deepest box above it at that time. */
  boxAt(text) {
    const [depth, time] = text.split("@").map(Number);
    const at = time * 1e9 - this.fromNs;
    let found = this.root;
    while (found.depth < depth) {
      const next = this.children(found).find(({ from, to, isGap }) => !isGap && from <= at && at < to);
      if (!next) break;
      found = next;
    }
    return found;
  }

  /** Returns a test whether a marked name stands in a box or in the boxes below it. */
  pathsTo(marks) {
    const above = this.model.markedAbove(marks);
    return ({ first, end }) => this.spans.slice(first, end).some(({ node }) => above[node]);
  }

  /** Time of the samples in a box. */
  sampledNs({ first, end }) {
    return total(this.spans.slice(first, end).map(({ ns }) => ns));
  }
}
