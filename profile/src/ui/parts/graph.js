// A flame graph on a canvas: lays out the boxes of a view, draws the visible ones, and handles the mouse.
//
// The number of pixels bounds the cost, not the size of the profile: a box narrower than a device pixel is neither
// laid out nor expanded, and adjacent narrow boxes are drawn as one strip. The drawing is kept, so that a move of the
// mouse copies it and outlines one box.

const ROW = 19;

const GRAPH_FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** Least width of a box that is shown on purpose: some letters of its name. */
const REVEALED = 40;
/** Shades of each kind, so that adjacent boxes differ. The name of a method decides its shade. */
const SHADES = 5;
const MIDDLE_SHADE = (SHADES - 1) / 2;

/** Splits `package.Class.method` in front of the class; other names stay whole. */
function splitName(label) {
  const match = /^((?:[a-z_][\w$]*\.)+)([A-Z][^\s(]*)$/.exec(label);
  return match ? [match[1], match[2]] : ["", label];
}

/** The colour of a kind of code in one of its shades. */
function shadeOf({ hue, saturation }, shade, dark) {
  const step = shade - MIDDLE_SHADE;
  return dark
    ? `hsl(${hue + step * 2} ${saturation * 0.78}% ${37 + step * 1.9}%)`
    : `hsl(${hue + step * 2} ${saturation}% ${72 + step * 2.3}%)`;
}

class Graph {
  /**
   * Draws on `canvas`, which sticks to the top of `scroll` inside `spacer`; `events`: hover(box, event), and changed()
   * after a zoom or a move of the cursor.
   */
  constructor(canvas, scroll, spacer, events) {
    Object.assign(this, { canvas, scroll, spacer, events });
    this.paper = canvas.getContext("2d");
    this.icicle = false;
    this.dark = false;
    this.view = null;
    this.zoom = null;
    this.hover = null;
    this.cursor = null;
    /** Marks the names of the tree that a search found, or null. */
    this.matches = null;
    /** Returns the colour of a box; null for the colours of kinds. */
    this.colour = null;
    this.rows = [];
    /** Adjacent boxes too narrow to be drawn one by one, by row. */
    this.strips = [];
    /** The last drawing of the boxes, without outlines; `isStale` if it must be repeated. */
    this.picture = document.createElement("canvas");
    this.isStale = true;
    this.width = 0;
    this.height = 0;
    this.fromRoot = 0;
    this.shades = new Map();
    this.measured = new Map();
    this.setTheme(false);
    this.listen();
  }

  // ---- For the view ----

  show(view) {
    this.view = view;
    this.zoom = view.root;
    this.cursor = null;
    this.hover = null;
    this.refresh(true);
  }

  zoomTo(box) {
    if (!box) return;
    unfold(box);
    this.zoom = box;
    this.cursor = null;
    this.hover = null;
    this.events.hover(null);
    this.refresh(false);
  }

  /** Shows a box with the cursor on it. Zooms if it is too narrow, and no further than needed. */
  reveal(box) {
    if (!(this.entryOf(box)?.width >= REVEALED)) {
      for (let above = box; above && (box.total / above.total) * this.width >= REVEALED; above = above.parent) this.zoom = above;
    }
    this.cursor = box;
    this.hover = null;
    this.refresh(false);
    this.scroll.scrollTop += this.top(box.depth) - (this.height - ROW) / 2;
    this.keepPlace();
    this.draw();
  }

  /** Scrolls to a distance from the root, with the cursor on a box or on none. */
  restore(fromRoot, cursor) {
    this.cursor = cursor;
    this.fromRoot = fromRoot;
    this.refresh(false);
  }

  orient(icicle) {
    this.icicle = icicle;
    if (this.view) this.refresh(true);
  }

  setTheme(dark) {
    this.dark = dark;
    this.fills = KINDS.map((kind) => Array.from({ length: SHADES }, (_, shade) => shadeOf(kind, shade, dark)));
    this.redraw();
  }

  /** Repeats the drawing after a change of colours or marks. */
  redraw() {
    this.isStale = true;
    if (this.view) this.draw();
  }

  swatch(kind) {
    return this.fills[kind][MIDDLE_SHADE];
  }

  /** Moves the cursor to an adjacent box and shows its tooltip. */
  move(key) {
    const at = this.cursor || this.zoom;
    const siblings = (this.rows[at.depth] || []).map((entry) => entry.node).filter((node) => node.parent === at.parent);
    const index = siblings.indexOf(at);
    const deeper = this.icicle ? "ArrowDown" : "ArrowUp";
    const to = key === "ArrowLeft" ? siblings[index - 1]
      : key === "ArrowRight" ? siblings[index + 1]
      : key === deeper ? this.view.children(at)[0]
      : at.parent;
    if (!to || !this.entryOf(to)) return;
    this.cursor = to;
    const y = this.top(to.depth);
    if (y < 0) this.scroll.scrollTop += y - ROW;
    if (y + ROW > this.height) this.scroll.scrollTop += y + 2 * ROW - this.height;
    this.draw();
    this.events.changed();
    const row = this.entryOf(to);
    const area = this.canvas.getBoundingClientRect();
    this.events.hover(to, { clientX: area.left + row.x, clientY: area.top + this.top(to.depth) });
  }

  // ---- Layout ----

  /** Lays out the boxes at least a device pixel wide, by row from the root, each row from left to right. */
  layOut() {
    const rows = [];
    const strips = [];
    const narrowest = 1 / this.ratio;
    const keep = (depth, strip) => strip.width >= narrowest && (strips[depth] ||= []).push(strip);
    for (let above = this.zoom; above; above = above.parent) rows[above.depth] = [{ node: above, x: 0, width: this.width }];
    const visit = [rows[this.zoom.depth][0]];
    while (visit.length > 0) {
      const { node, x, width } = visit.pop();
      if (node !== this.zoom) (rows[node.depth] ||= []).push({ node, x, width });
      const visible = [];
      const perNs = node.total > 0 ? width / node.total : 0;
      let left = x;
      let rest = null;
      for (const child of this.ordered(node, perNs > 0 ? narrowest / perNs : Infinity)) {
        const share = child.total * perNs;
        if (child.isGap) {
          left += share;
        } else if (share >= narrowest) {
          visible.push({ node: child, x: left, width: share });
          left += share;
        } else {
          const isFar = this.view.isInTime && rest && left - (rest.x + rest.width) > narrowest;
          if (isFar) keep(node.depth + 1, rest);
          if (isFar || !rest) rest = { kind: child.kind, x: left, width: 0 };
          rest.width += share;
          if (this.view.isInTime) left += share;
        }
      }
      if (rest) keep(node.depth + 1, rest);
      // The leftmost box is popped next, so that rows fill from the left.
      while (visible.length > 0) visit.push(visible.pop());
    }
    for (let depth = 0; depth < strips.length; depth++) if (strips[depth]) rows[depth] ||= [];
    this.rows = rows;
    this.strips = strips;
  }

  /** The boxes below a box from left to right; those with less CPU time than `least` come last. */
  ordered(node, least) {
    const children = this.view.children(node);
    if (!this.view.isByName) return children;
    // The heaviest come first, so all boxes after a narrow one are narrow.
    const narrow = children.findIndex((child) => child.total < least);
    const wide = narrow < 0 ? children.length : narrow;
    return [...children.slice(0, wide).sort((a, b) => (a.label < b.label ? -1 : 1)), ...children.slice(wide)];
  }

  /** The position of a box, if it is laid out. */
  entryOf(node) {
    return this.rows[node.depth]?.find((entry) => entry.node === node);
  }

  refresh(toRoot) {
    if (toRoot) this.fromRoot = 0;
    const { fromRoot, scroll, canvas } = this;
    this.width = Math.max(scroll.clientWidth - 12, 50);
    this.height = scroll.clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    this.layOut();
    this.spacer.style.height = `${Math.max(this.rows.length * ROW + 2, this.height)}px`;
    const [width, height] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
    // Setting the size of a canvas clears it and allocates, even if the size is the same.
    for (const sheet of [canvas, this.picture]) {
      if (sheet.width !== width) sheet.width = width;
      if (sheet.height !== height) sheet.height = height;
    }
    canvas.style.width = `${this.width}px`;
    canvas.style.height = `${this.height}px`;
    this.isStale = true;
    // The distance from the root stays the same.
    scroll.scrollTop = this.icicle ? fromRoot : scroll.scrollHeight - scroll.clientHeight - fromRoot;
    this.events.changed();
    this.draw();
  }

  /** Keeps what is in sight where it is when the size changes. */
  keepPlace() {
    const { scroll } = this;
    this.fromRoot = this.icicle ? scroll.scrollTop : scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop;
  }

  /** The upper edge of a row on the canvas. */
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

  /** The longest form of a name that fits: with package, with short packages, without, or its beginning. */
  fitted(label, width) {
    if (width < 16) return "";
    if (this.widthOf(label) <= width) return label;
    const [place, short] = splitName(label);
    const initials = place.replace(/([^.])[^.]*\./g, "$1.") + short;
    if (this.widthOf(initials) <= width) return initials;
    if (this.widthOf(short) <= width) return short;
    const letters = Math.floor((width - 8) / (this.widthOf(short) / Math.max(short.length, 1)));
    // Letters differ in width, so the estimate can be too long.
    let cut = letters;
    while (cut >= 2 && this.paper.measureText(`${short.slice(0, cut)}…`).width > width) cut--;
    return cut >= 2 ? `${short.slice(0, cut)}…` : "";
  }

  // ---- Drawing ----

  draw() {
    const { paper, picture } = this;
    if (this.isStale || this.drawnAt !== this.scroll.scrollTop) this.drawPicture();
    paper.setTransform(1, 0, 0, 1, 0, 0);
    paper.clearRect(0, 0, picture.width, picture.height);
    if (picture.width > 0 && picture.height > 0) paper.drawImage(picture, 0, 0);
    paper.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const [node, line] of [[this.cursor, 2], [this.hover, 1.5]]) this.outline(node, line, this.ink());
  }

  ink() {
    return this.dark ? "#f3f5f8" : "#1a1f29";
  }

  drawPicture() {
    this.isStale = false;
    this.drawnAt = this.scroll.scrollTop;
    const paper = this.picture.getContext("2d");
    this.paper.font = GRAPH_FONT;
    paper.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    paper.clearRect(0, 0, this.width, this.height);
    paper.font = GRAPH_FONT;
    paper.textBaseline = "middle";
    for (let depth = 0; depth < this.rows.length; depth++) {
      const y = this.top(depth);
      if (y > this.height || y + ROW < 0) continue;
      for (const { kind, x, width } of this.strips[depth] || []) {
        paper.globalAlpha = this.matches ? 0.15 : 0.4;
        paper.fillStyle = this.colour ? this.fills[MARKER][0] : this.fills[kind][MIDDLE_SHADE];
        paper.fillRect(x, y + 0.5, Math.max(width - 1, 1), ROW - 1.5);
      }
      for (const entry of this.rows[depth]) this.drawBox(paper, entry.node, entry.x, y, entry.width);
    }
    paper.globalAlpha = 1;
  }

  drawBox(paper, node, x, y, width) {
    const { dark, ratio } = this;
    const hit = this.matches && node.name >= 0 && this.matches[node.name];
    const faded = (this.matches && !hit) || node.depth < this.zoom.depth;
    paper.globalAlpha = faded ? 0.38 : 1;
    const own = this.colour?.(node) ?? this.fills[node.kind][this.shade(node.label)];
    paper.fillStyle = hit ? (dark ? "#b5379f" : "#ef8fdf") : own;
    if (width <= 8) {
      // On whole pixels: there are thousands of narrow boxes, and edges between pixels are slow to draw.
      const left = Math.round(x * ratio) / ratio;
      const right = Math.round((x + width) * ratio) / ratio - (width > 3 ? 1 : 0);
      paper.fillRect(left, y + 0.5, Math.max(right - left, 1 / ratio), ROW - 1.5);
      return;
    }
    paper.beginPath();
    paper.roundRect(x, y + 0.5, width - 1, ROW - 1.5, 2);
    paper.fill();
    const text = this.fitted(node.isFolded ? `${node.label} ▸` : node.label, width - 10);
    if (text) {
      paper.globalAlpha = faded ? 0.6 : 1;
      paper.fillStyle = this.ink();
      paper.fillText(text, x + 5, y + ROW / 2 + 0.5);
    }
  }

  outline(node, line, ink) {
    const found = node && this.entryOf(node);
    if (!found) return;
    this.paper.strokeStyle = ink;
    this.paper.lineWidth = line;
    const width = Math.max(found.width - 1 - line, 1);
    this.paper.strokeRect(found.x + line / 2, this.top(node.depth) + line / 2, width, ROW - 0.5 - line);
  }

  // ---- Mouse ----

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
      // Between a change of size and its layout, the browser moves the position.
      if (!this.view || scroll.clientHeight !== this.height) return;
      this.keepPlace();
      this.draw();
    }));
    new ResizeObserver(() => requestAnimationFrame(() => this.view && this.refresh(false))).observe(scroll);
  }
}
