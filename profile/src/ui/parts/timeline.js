// The timeline: a row for each process or thread, a column for each time bucket, coloured by processors in use.

const TIMELINE_ROW = 17;
const TIMELINE_AXIS = 18;
/** Pixels for names, on wide and on narrow screens. */
const NAMES_WIDE = 210;
const NAMES_NARROW = 104;

class Timeline {
  constructor(canvas, scroll) {
    this.canvas = canvas;
    this.scroll = scroll;
    this.paper = canvas.getContext("2d");
    this.data = null;
    /** First and last position of the mouse while it drags, or null. */
    this.drag = null;
    /** First and last column chosen with keys, or null. */
    this.chosenColumns = null;
    /** Prefix of the parameters of the side of a comparison that a drag chooses. */
    this.side = "";
    /** Places of rows in the order in which they were first shown, so that they do not move; and their selection. */
    this.places = new Map();
    this.placesOf = "";
    this.listen();
  }

  show(data) {
    this.data = data = isUnbounded() ? withoutEmptyEnds(data) : data;
    this.keepPlaces(data.rows);
    const whole = total(data.rows.map((row) => total(row.cpu_ns))) + data.left_out_ns;
    const width = data.to_ns - data.from_ns;
    const decimals = width < 10e9 ? decimalsOf(data.bucket_ns) : 0;
    const [from, to] = [data.from_ns, data.to_ns].map((ns) => clock(ns, true, decimals));
    const sameDay = from.slice(0, 10) === to.slice(0, 10);
    const isToday = sameDay && from.slice(0, 10) === clock(Date.now() * 1e6).slice(0, 10);
    const parts = [`${isToday ? from.slice(11) : from} to ${sameDay ? to.slice(11) : to}`, `${duration(whole)} ${timeName()}`, processors(whole / width), `${duration(data.bucket_ns)} per column`];
    if (data.rows_left_out) parts.push(`${data.rows_left_out} rows not shown`);
    const gaps = data.gaps ? ` · samples missing: ${data.gaps.map((gap) => `${gap.path} is damaged (${clock(gap.from_ns)} to ${clock(gap.to_ns)})`).join(", ")}` : "";
    // Lines end between the parts.
    const spans = parts.flatMap((part, index) => [element("span", "", index ? `· ${part}` : part), " "]);
    $("range").replaceChildren(...(width > 0 ? [...spans.slice(0, -1), gaps] : ["No samples in this range"]));
    $("range").title = $("range").textContent;
    this.draw();
  }

  /** Orders rows as before; new ones come last, the busiest of them first. */
  keepPlaces(rows) {
    const of = JSON.stringify([state.rows, ...selection()]);
    if (this.placesOf !== of) Object.assign(this, { placesOf: of, places: new Map() });
    const keyOf = (row) => [row.group, row.process, row.thread, row.java_id].join("\n");
    for (const row of rows) if (!this.places.has(keyOf(row))) this.places.set(keyOf(row), this.places.size);
    rows.sort((a, b) => this.places.get(keyOf(a)) - this.places.get(keyOf(b)));
  }

  /** Pixels for the names of rows. */
  get names() {
    return this.scroll.clientWidth < 600 ? NAMES_NARROW : NAMES_WIDE;
  }

  columns() {
    return Math.max(1, Math.ceil((this.data.to_ns - this.data.from_ns) / this.data.bucket_ns));
  }

  /** The width of a column in pixels. */
  step() {
    return (this.canvas.clientWidth - this.names - 16) / this.columns();
  }

  /** First and last position of the range that the mouse or keys choose, or null. */
  chosenRange() {
    if (this.drag) return [Math.min(...this.drag), Math.max(...this.drag)];
    if (!this.chosenColumns) return null;
    const most = this.columns() - 1;
    const [a, b] = this.chosenColumns.map((column) => Math.min(column, most));
    return [this.names + Math.min(a, b) * this.step(), this.names + (Math.max(a, b) + 1) * this.step()];
  }

  showRange() {
    const [from, to] = this.chosenRange();
    this.drag = this.chosenColumns = null;
    const prefix = state.tab === "compare" ? (this.isShifted ? "before." : this.side) : "";
    this.isShifted = false;
    // After the time before follows the time now.
    if (prefix) this.side = "";
    go({ [`${prefix}from`]: seconds(this.timeAt(from)), [`${prefix}to`]: seconds(this.timeAt(to)) });
  }

  /** Arrows choose a column, with Shift several columns; Enter shows the range. */
  onKey(event) {
    if (!this.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      const most = this.columns() - 1;
      const last = this.chosenColumns ? Math.min(Math.max(this.chosenColumns[1] + by, 0), most) : by > 0 ? 0 : most;
      this.chosenColumns = [event.shiftKey && this.chosenColumns ? this.chosenColumns[0] : last, last];
      this.draw();
    } else if (event.key === "Enter" && this.chosenColumns) {
      this.showRange();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  title(row) {
    if (state.rows.startsWith("label:")) return row.group || `(no ${state.rows.slice("label:".length)})`;
    const process = processes.find((known) => known.process === row.process);
    const name = process ? process.service || process.command : row.process;
    if (state.rows === "process") return process ? `${name} (${process.pid})` : name;
    return shownProcess() ? row.thread : `${row.thread} · ${name}`;
  }

  /** A name as it fits into so many pixels: without packages, then cut. */
  fitting(name, width) {
    const fits = (text) => this.paper.measureText(text).width <= width;
    if (fits(name)) return name;
    const short = name.replace(/^(?:[a-z_]\w*\.)+(?=[A-Z])/, "");
    if (fits(short)) return short;
    let cut = short.length - 1;
    while (cut > 1 && !fits(`${short.slice(0, cut)}…`)) cut--;
    return `${short.slice(0, cut)}…`;
  }

  draw() {
    if (!this.data) return;
    const { canvas, paper, data } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = this.scroll.clientWidth;
    const rows = data.rows.length;
    const height = Math.max(rows, 1) * TIMELINE_ROW + TIMELINE_AXIS;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, width, height);
    paper.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
    paper.textBaseline = "middle";
    const style = getComputedStyle(document.documentElement);
    const [dim, text, line, accent] = ["--dim", "--text", "--line", "--accent"].map((name) => style.getPropertyValue(name).trim());
    const most = Math.max(1, ...data.rows.map((row) => Math.max(0, ...row.cpu_ns)));
    const step = this.step();
    data.rows.forEach((row, index) => {
      const y = TIMELINE_AXIS + index * TIMELINE_ROW;
      paper.fillStyle = isChosenRow(row) ? accent : text;
      paper.save();
      paper.beginPath();
      paper.rect(16, y, this.names - 24, TIMELINE_ROW);
      paper.clip();
      paper.fillText(this.fitting(this.title(row), this.names - 24), 16, y + TIMELINE_ROW / 2);
      paper.restore();
      paper.fillStyle = line;
      paper.globalAlpha = 0.35;
      paper.fillRect(this.names, y + 1, width - this.names - 16, TIMELINE_ROW - 2);
      paper.globalAlpha = 1;
      row.cpu_ns.forEach((ns, column) => {
        if (ns === 0) return;
        paper.fillStyle = cellColour(Math.sqrt(ns / most));
        paper.fillRect(this.names + column * step, y + 1, Math.max(step - (step > 4 ? 1 : 0), 0.6), TIMELINE_ROW - 2);
      });
    });
    this.drawAxis(dim, width);
    const brush = ([a, b], colour, alpha) => {
      paper.fillStyle = colour;
      paper.globalAlpha = alpha;
      paper.fillRect(a, TIMELINE_AXIS, b - a, height - TIMELINE_AXIS);
      paper.globalAlpha = 1;
    };
    if (state.tab === "compare") {
      for (const [prefix, colour, name] of [["before.", dim, "before"], ["", accent, "now"]]) {
        const side = this.sideRange(prefix);
        if (!side) continue;
        brush(side, colour, 0.3);
        paper.fillStyle = colour;
        for (const x of side) paper.fillRect(x - 1, TIMELINE_AXIS, 2, height - TIMELINE_AXIS);
        this.tag(name, side, colour);
      }
    }
    const range = this.chosenRange();
    if (range) brush(range, accent, 0.22);
  }

  /** Writes the name of a brush over its left end. */
  tag(name, [left], colour) {
    const { paper } = this;
    const width = paper.measureText(name).width + 8;
    const x = Math.min(left, this.canvas.clientWidth - 16 - width);
    paper.fillStyle = colour;
    paper.fillRect(x, 0, width, TIMELINE_AXIS);
    paper.fillStyle = isDark() ? "#12151b" : "#ffffff";
    paper.fillText(name, x + 4, TIMELINE_AXIS / 2);
  }

  /** Pixels of the range of one side of a comparison; null if it is the whole time. */
  sideRange(prefix) {
    const { from_ns: first, to_ns: last } = this.data;
    const timeOf = (text, otherwise) => {
      if (!text) return otherwise;
      if (!text.startsWith("-")) return text === "now" ? last : Number(text) * 1e9;
      const unit = { s: 1e9, m: 60e9, h: 3600e9, d: 86400e9 }[text.slice(-1)];
      return last - Number(text.slice(1, -1)) * unit;
    };
    const [from, to] = [state[`${prefix}from`], state[`${prefix}to`]];
    if (!from && !to) return null;
    const pixel = (ns) => this.names + Math.min(Math.max((ns - first) / (last - first || 1), 0), 1) * (this.canvas.clientWidth - this.names - 16);
    return [pixel(timeOf(from, first)), pixel(timeOf(to, last))];
  }

  drawAxis(colour, width) {
    const { data, paper } = this;
    const span = data.to_ns - data.from_ns;
    if (span <= 0) return;
    const available = width - this.names - 16;
    const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800];
    const every = (steps.find((s) => (s * 1e9 / span) * available >= 80) || 2592000) * 1e9;
    paper.fillStyle = colour;
    const zone = new Date().getTimezoneOffset() * 60e9;
    for (let ns = Math.ceil((data.from_ns - zone) / every) * every + zone; ns < data.to_ns; ns += every) {
      const x = this.names + ((ns - data.from_ns) / span) * available;
      paper.fillRect(x, TIMELINE_AXIS - 4, 1, 4);
      const text = every >= 86400e9 ? clock(ns).slice(5, 10) : clock(ns, every < 60e9, decimalsOf(every)).slice(11);
      if (x + 3 + paper.measureText(text).width <= width) paper.fillText(text, x + 3, TIMELINE_AXIS / 2 - 1);
    }
  }

  timeAt(x) {
    const { data } = this;
    const share = (x - this.names) / (this.canvas.clientWidth - this.names - 16);
    return data.from_ns + Math.min(Math.max(share, 0), 1) * (data.to_ns - data.from_ns);
  }

  rowAt(y) {
    return this.data?.rows[Math.floor((y - TIMELINE_AXIS) / TIMELINE_ROW)];
  }

  choose(row) {
    if (state.rows.startsWith("label:")) {
      const label = `${state.rows.slice("label:".length)}=${row.group}`;
      return row.group ? go({ label: state.label === label ? null : label, process: null }) : undefined;
    }
    if (state.rows === "process") return go({ process: state.process === row.process ? null : row.process });
    go({ process: row.process, thread: state.thread === row.thread ? null : row.thread });
  }

  tip(event) {
    const row = this.rowAt(event.offsetY);
    if (!row || event.offsetX < this.names) {
      this.canvas.style.cursor = row ? "pointer" : "crosshair";
      return hideTip();
    }
    this.canvas.style.cursor = "crosshair";
    const column = Math.floor((event.offsetX - this.names) / this.step());
    const ns = row.cpu_ns[column] || 0;
    showTip(
      event,
      element("div", "what", this.title(row)),
      element("div", "kinds", `${clock(this.data.from_ns + column * this.data.bucket_ns, true, decimalsOf(this.data.bucket_ns))} · ${duration(ns)} ${timeName()} · ${processors(ns / this.data.bucket_ns)}`),
    );
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.offsetX < this.names || event.offsetY < 0) return;
      this.drag = [event.offsetX, event.offsetX];
      // In a comparison, Shift chooses the side before.
      this.isShifted = event.shiftKey;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.data) return;
      if (!this.drag) return this.tip(event);
      this.drag[1] = event.offsetX;
      hideTip();
      this.draw();
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("click", (event) => {
      const row = this.rowAt(event.offsetY);
      if (row && event.offsetX < this.names) this.choose(row);
    });
    addEventListener("pointerup", () => {
      if (!this.drag) return;
      const [a, b] = this.drag;
      if (Math.abs(a - b) >= 4) return this.showRange();
      this.drag = null;
      this.draw();
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("blur", () => {
      this.chosenColumns = null;
      this.draw();
    });
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.scroll);
  }
}

/** Whether the selection is the process or the thread of a row, among others. */
function isChosenRow(row) {
  return state.rows === "thread" ? row.thread !== "" && row.thread === state.thread : row.process !== "" && row.process === state.process;
}

/** Whether the address names no end of the time that is shown. */
const isUnbounded = () => state.tab === "compare" || (!state.to && !state.from);

/** The data without empty columns at both ends: processors in use are counted from the first sample to the last. */
function withoutEmptyEnds(data) {
  const columns = data.rows.flatMap((row) => [row.cpu_ns.findIndex((ns) => ns > 0), row.cpu_ns.findLastIndex((ns) => ns > 0)]);
  const used = columns.filter((column) => column >= 0);
  if (used.length === 0) return data;
  const first = state.from && state.tab !== "compare" ? 0 : Math.min(...used);
  const end = Math.max(...used) + 1;
  const rows = data.rows.map((row) => ({ ...row, cpu_ns: row.cpu_ns.slice(first, end) }));
  const time = (column) => data.from_ns + column * data.bucket_ns;
  return { ...data, rows, from_ns: time(first), to_ns: Math.min(data.to_ns, time(end)) };
}

/** The colour of a cell by its share of the busiest cell. */
function cellColour(share) {
  const hue = 46 - share * 34;
  return isDark() ? `hsl(${hue} ${60 + share * 25}% ${22 + share * 36}%)` : `hsl(${hue} ${70 + share * 18}% ${88 - share * 40}%)`;
}
