// A flame graph on a canvas: lays out the boxes of a view, draws those that can be seen, and follows the hands.

const ROW = 19;
/** Boxes narrower than this many pixels are left out; zooming brings them in. */
const NARROWEST = 0.5;

const GRAPH_FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** Shades of each kind, so that neighbours can be told apart; which one a method gets depends on its name only. */
const SHADES = 5;

/** Splits `package.Class.method` in front of the class; other names stay whole. */
function splitName(label) {
  const match = /^((?:[a-z_][\w$]*\.)+)([A-Z][^\s(]*)$/.exec(label);
  return match ? [match[1], match[2]] : ["", label];
}

class Graph {
  /** Draws on `canvas`, which sticks to the top of `scroll` inside `spacer`. `events`: hover(box, event), zoomed(). */
  constructor(canvas, scroll, spacer, events) {
    Object.assign(this, { canvas, scroll, spacer, events });
    this.paper = canvas.getContext("2d");
    this.icicle = false;
    this.dark = false;
    this.view = null;
    this.zoom = null;
    this.hover = null;
    this.cursor = null;
    /** For each name of the model whether it is marked, or null. */
    this.matches = null;
    /** Colour of a box if it is not that of its kind. */
    this.colour = null;
    this.rows = [];
    this.width = 0;
    this.height = 0;
    this.fromRoot = 0;
    this.shades = new Map();
    this.measured = new Map();
    this.setTheme(false);
    this.listen();
  }

  // ---- What its owner asks for ----

  show(view) {
    this.view = view;
    this.zoom = view.root;
    this.cursor = null;
    this.hover = null;
    this.refresh(true);
  }

  zoomTo(box) {
    if (!box) return;
    this.zoom = box;
    this.hover = null;
    this.events.hover(null);
    this.refresh(false);
  }

  orient(icicle) {
    this.icicle = icicle;
    if (this.view) this.refresh(true);
  }

  setTheme(dark) {
    this.dark = dark;
    this.fills = KINDS.map(({ hue, saturation }) => Array.from({ length: SHADES }, (_, shade) => {
      const step = shade - (SHADES - 1) / 2;
      return dark
        ? `hsl(${hue + step * 2} ${saturation * 0.78}% ${37 + step * 1.9}%)`
        : `hsl(${hue + step * 2} ${saturation}% ${72 + step * 2.3}%)`;
    }));
    if (this.view) this.draw();
  }

  swatch(kind) {
    return this.fills[kind][(SHADES - 1) / 2];
  }

  /** Moves the selected box; tells where it is. */
  move(key) {
    const at = this.cursor || this.zoom;
    const siblings = at.parent ? this.view.children(at.parent) : [at];
    const index = siblings.indexOf(at);
    const deeper = this.icicle ? "ArrowDown" : "ArrowUp";
    const to = key === "ArrowLeft" ? siblings[index - 1]
      : key === "ArrowRight" ? siblings[index + 1]
      : key === deeper ? this.view.children(at)[0]
      : at.parent;
    if (!to || !this.rows[to.depth]?.some((entry) => entry.node === to)) return;
    this.cursor = to;
    const y = this.top(to.depth);
    if (y < 0) this.scroll.scrollTop += y - ROW;
    if (y + ROW > this.height) this.scroll.scrollTop += y + 2 * ROW - this.height;
    this.draw();
    const row = this.rows[to.depth].find((entry) => entry.node === to);
    const area = this.canvas.getBoundingClientRect();
    this.events.hover(to, { clientX: area.left + row.x, clientY: area.top + this.top(to.depth) });
  }

  // ---- Layout ----

  /** Boxes wide enough to be seen, by row from the root. */
  layOut() {
    const rows = [];
    const put = (node, x, width) => (rows[node.depth] ||= []).push({ node, x, width });
    for (let above = this.zoom.parent; above; above = above.parent) put(above, 0, this.width);
    const visit = [[this.zoom, 0, this.width]];
    while (visit.length > 0) {
      const [node, x, width] = visit.pop();
      put(node, x, width);
      let left = x;
      for (const child of this.view.children(node)) {
        const share = node.total > 0 ? (child.total / node.total) * width : 0;
        // Heaviest first: once one is too narrow, the rest is too.
        if (share < NARROWEST) break;
        visit.push([child, left, share]);
        left += share;
      }
    }
    for (const row of rows) row.sort((a, b) => a.x - b.x);
    this.rows = rows;
  }

  refresh(toRoot) {
    if (toRoot) this.fromRoot = 0;
    const { fromRoot, scroll, canvas } = this;
    this.width = Math.max(scroll.clientWidth - 12, 50);
    this.height = scroll.clientHeight;
    this.layOut();
    this.spacer.style.height = `${Math.max(this.rows.length * ROW + 2, this.height)}px`;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = this.width * ratio;
    canvas.height = this.height * ratio;
    canvas.style.width = `${this.width}px`;
    canvas.style.height = `${this.height}px`;
    this.paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    // What stays in place is the distance from the root, wherever that is.
    scroll.scrollTop = this.icicle ? fromRoot : scroll.scrollHeight - scroll.clientHeight - fromRoot;
    this.events.zoomed();
    this.draw();
  }

  /** Upper edge of a row on the canvas. */
  top(depth) {
    const whole = Math.max(this.rows.length * ROW + 2, this.height);
    const y = this.icicle ? depth * ROW : whole - (depth + 1) * ROW;
    return y - this.scroll.scrollTop;
  }

  // ---- Texts in boxes ----

  shade(label) {
    let value = this.shades.get(label);
    if (value === undefined) {
      let hash = 7;
      for (let i = 0; i < label.length; i++) hash = (hash * 31 + label.charCodeAt(i)) | 0;
      this.shades.set(label, (value = Math.abs(hash) % SHADES));
    }
    return value;
  }

  widthOf(text) {
    let width = this.measured.get(text);
    if (width === undefined) this.measured.set(text, (width = this.paper.measureText(text).width));
    return width;
  }

  /** As much of a name as fits: with package, without, the method alone, or its beginning. */
  fitted(label, width) {
    if (width < 16) return "";
    if (this.widthOf(label) <= width) return label;
    const short = splitName(label)[1];
    if (this.widthOf(short) <= width) return short;
    const method = short.slice(short.lastIndexOf(".") + 1);
    if (method && this.widthOf(method) <= width) return method;
    const room = Math.floor((width - 8) / (this.widthOf(method) / Math.max(method.length, 1)));
    return room >= 2 ? `${method.slice(0, room)}…` : "";
  }

  // ---- Drawing ----

  draw() {
    const { paper } = this;
    const ink = this.dark ? "#f3f5f8" : "#1a1f29";
    paper.clearRect(0, 0, this.width, this.height);
    paper.font = GRAPH_FONT;
    paper.textBaseline = "middle";
    this.rows.forEach((row, depth) => {
      const y = this.top(depth);
      if (y > this.height || y + ROW < 0) return;
      for (const { node, x, width } of row) this.drawBox(node, x, y, width, ink);
    });
    for (const [node, line] of [[this.cursor, 2], [this.hover, 1.5]]) this.outline(node, line, ink);
  }

  drawBox(node, x, y, width, ink) {
    const { paper, dark } = this;
    const hit = this.matches && node.name >= 0 && this.matches[node.name];
    const faded = (this.matches && !hit) || node.depth < this.zoom.depth;
    paper.globalAlpha = faded ? 0.38 : 1;
    const own = this.colour?.(node) ?? this.fills[node.kind][this.shade(node.label)];
    paper.fillStyle = hit ? (dark ? "#b5379f" : "#ef8fdf") : own;
    const inner = Math.max(width - (width > 3 ? 1 : 0), 0.5);
    if (width > 8) {
      paper.beginPath();
      paper.roundRect(x, y + 0.5, inner, ROW - 1.5, 2);
      paper.fill();
    } else {
      paper.fillRect(x, y + 0.5, inner, ROW - 1.5);
    }
    const text = this.fitted(node.label, inner - 9);
    if (text) {
      paper.globalAlpha = faded ? 0.6 : 1;
      paper.fillStyle = ink;
      paper.fillText(text, x + 5, y + ROW / 2 + 0.5);
    }
    paper.globalAlpha = 1;
  }

  outline(node, line, ink) {
    const row = node && this.rows[node.depth];
    const found = row && row.find((entry) => entry.node === node);
    if (!found) return;
    this.paper.strokeStyle = ink;
    this.paper.lineWidth = line;
    const width = Math.max(found.width - 1 - line, 1);
    this.paper.strokeRect(found.x + line / 2, this.top(node.depth) + line / 2, width, ROW - 0.5 - line);
  }

  // ---- Hands ----

  boxAt(event) {
    const area = this.canvas.getBoundingClientRect();
    const x = event.clientX - area.left;
    const y = event.clientY - area.top + this.scroll.scrollTop;
    const whole = Math.max(this.rows.length * ROW + 2, this.height);
    const depth = Math.floor((this.icicle ? y : whole - y) / ROW);
    return this.rows[depth]?.find((entry) => x >= entry.x && x < entry.x + entry.width)?.node || null;
  }

  listen() {
    const { canvas, scroll } = this;
    canvas.addEventListener("mousemove", (event) => {
      if (!this.view) return;
      const node = this.boxAt(event);
      if (node !== this.hover) {
        this.hover = node;
        this.draw();
      }
      canvas.style.cursor = node ? "pointer" : "default";
      this.events.hover(node, event);
    });
    canvas.addEventListener("mouseleave", () => {
      this.hover = null;
      this.events.hover(null);
      if (this.view) this.draw();
    });
    canvas.addEventListener("click", (event) => this.view && this.zoomTo(this.boxAt(event)));
    scroll.addEventListener("scroll", () => requestAnimationFrame(() => {
      // While a change of size is waiting to be laid out, the position is not the user's.
      if (!this.view || scroll.clientHeight !== this.height) return;
      this.fromRoot = this.icicle ? scroll.scrollTop : scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop;
      this.draw();
    }));
    new ResizeObserver(() => requestAnimationFrame(() => this.view && this.refresh(false))).observe(scroll);
  }
}
