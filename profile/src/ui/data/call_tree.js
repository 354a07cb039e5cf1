// The call tree behind a flame graph.

/** Kinds of frames by their number in the protocol. */
const KINDS = [
  { id: "unspecified", name: "Java", hue: 95, saturation: 38, meaning: "Java code of which the recording does not say how it ran" },
  { id: "interpreted", name: "Interpreted", hue: 28, saturation: 78, meaning: "Java code that the interpreter runs, because it is not compiled yet" },
  { id: "c1", name: "C1 compiled", hue: 62, saturation: 52, meaning: "Java code compiled by C1, the JVM's quick compiler" },
  { id: "c2", name: "C2 compiled", hue: 132, saturation: 38, meaning: "Java code compiled by C2, the JVM's optimizing compiler" },
  { id: "inlined", name: "Inlined", hue: 178, saturation: 40, meaning: "Java code that a compiler copied into the compiled code of its caller" },
  { id: "native_method", name: "Native method", hue: 208, saturation: 58, meaning: "Java methods that are declared native: calls into C or C++ code" },
  { id: "stub", name: "Stub", hue: 262, saturation: 44, meaning: "Machine code that the JVM generates for itself, such as array copies and calls through interfaces" },
  { id: "native", name: "Native library", hue: 340, saturation: 50, meaning: "C or C++ code outside of the JVM, such as libc or a JNI library" },
  { id: "vm", name: "JVM", hue: 4, saturation: 58, meaning: "C++ code of the JVM, such as the garbage collector, the compilers and class loading" },
  { id: "marker", name: "Marker", hue: 220, saturation: 8, meaning: "No code: a group of threads, or in brackets the reason why callers are missing" },
  { id: "jvmci", name: "JVMCI compiled", hue: 146, saturation: 46, meaning: "Java code compiled by a JVMCI compiler such as Graal" },
];
const MARKER = 9;

/** Values of differences in a column that begins at 0. */
function fromDifferences(column) {
  const values = new Int32Array(column);
  for (let index = 1; index < values.length; index++) values[index] += values[index - 1];
  return values;
}

/** A call tree in columns: node 0 is the root, a parent comes before its children. */
class CallTree {
  /** Columns of an answer: `parents` are distances back to the parent. */
  constructor({ names, parents, frame_names: name, kinds: kind }) {
    const count = parents.length;
    this.names = names;
    this.count = count;
    /** Results that depend on the tree alone, not on its weights. */
    this.found = {};
    this.name = new Int32Array(name);
    this.kind = new Uint8Array(kind);
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

  /** The same tree with weights; `more` are further properties. */
  weighted(weights, more = {}) {
    return Object.assign(Object.create(CallTree.prototype), this, { weights, ...more });
  }

  /** Marks the names that a search text finds; null if it is not valid. */
  marks(text) {
    const test = matcherOf(text);
    return test && Uint8Array.from(this.names, (name) => (test(name) ? 1 : 0));
  }

  /** For each node whether its name or that of a node below it is marked. */
  markedBelow(marks) {
    const below = new Uint8Array(this.count);
    for (let node = this.count - 1; node > 0; node--) {
      below[node] |= marks[this.name[node]];
      below[this.parent[node]] |= below[node];
    }
    return below;
  }

  /** For each node whether its name or that of a node above it is marked. */
  markedAbove(marks) {
    const above = new Uint8Array(this.count);
    for (let node = 1; node < this.count; node++) above[node] = above[this.parent[node]] | marks[this.name[node]];
    return above;
  }

  /** Marks the nodes without an ancestor of the same name. The sum of their totals counts a recursion once. */
  get outermost() {
    return (this.found.outermost ||= this.findOutermost());
  }

  findOutermost() {
    const { name, parent, firstChild, nextChild } = this;
    const outermost = new Uint8Array(this.count);
    // Boxes of each name on the path to the node.
    const open = new Int32Array(this.names.length);
    for (let node = firstChild[0]; node > 0;) {
      if (open[name[node]]++ === 0) outermost[node] = 1;
      let next = firstChild[node];
      while (next < 0 && node > 0) {
        open[name[node]]--;
        next = nextChild[node];
        node = parent[node];
      }
      node = next;
    }
    return outermost;
  }

  /** Self and total CPU time by name, and the least depth of its nodes, as { name, self, total, depth }. */
  methods(weights) {
    const self = new Float64Array(this.names.length);
    const total = new Float64Array(this.names.length);
    const depth = new Float64Array(this.names.length).fill(Infinity);
    const depths = new Int32Array(this.count);
    const { outermost } = this;
    for (let node = 1; node < this.count; node++) {
      depths[node] = depths[this.parent[node]] + 1;
      if (weights.totalNs[node] === 0) continue;
      depth[this.name[node]] = Math.min(depth[this.name[node]], depths[node]);
      self[this.name[node]] += weights.selfNs[node];
      if (outermost[node]) total[this.name[node]] += weights.totalNs[node];
    }
    const rows = [];
    total.forEach((ns, name) => ns > 0 && rows.push({ name, self: self[name], total: ns, depth: depth[name] }));
    return rows;
  }

  /** CPU time of samples with a matching name anywhere on the stack. */
  matched(weights, matches) {
    const above = this.markedAbove(matches);
    let ns = 0;
    for (let node = 1; node < this.count; node++) if (above[node]) ns += weights.selfNs[node];
    return ns;
  }

  /** CPU time by kind of the running code. */
  selfByKind(weights) {
    const ns = new Float64Array(KINDS.length);
    for (let node = 1; node < this.count; node++) ns[this.kind[node]] += weights.selfNs[node];
    return ns;
  }
}
