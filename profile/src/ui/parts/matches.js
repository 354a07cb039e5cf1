// The boxes of a graph that a search marks: their number, and the way from one to the next.

/** Most matches that are counted. Who has more of them needs a longer search text. */
const MOST_MATCHES = 1000;
/** Most boxes that are opened for a count, which takes about 200 ms. */
const MOST_OPENED = 20_000;

class Matches {
  /** Matches in the graph `on`; `onStep(number)` receives the number of the match that is shown, from 1. */
  constructor(on, onStep) {
    Object.assign(this, { on, onStep });
    this.clear();
    this.count = element("span", "count");
    this.element = element("span", "steps",
      this.stepButton("‹", "Previous match (N, or Shift+Enter in the search)", -1),
      this.count,
      this.stepButton("›", "Next match, from the heaviest to the lightest (n, or Enter in the search)", 1));
  }

  stepButton(title, hint, by) {
    const made = button("plain step", title, () => this.step(by));
    made.title = hint;
    return made;
  }

  /** Drops the boxes of an earlier view or text. */
  clear() {
    this.found = null;
    this.isCut = false;
    /** Number of the match that is shown, from 1; 0 for none. */
    this.shown = 0;
  }

  isMarked(box) {
    return box.name >= 0 && this.on.matches[box.name] === 1;
  }

  /** Finds the marked boxes that are not above another marked one, the heaviest first. */
  find() {
    if (this.found) return this.found;
    const { view, matches } = this.on;
    const leadsTo = view.pathsTo(matches);
    this.found = [];
    let opened = 0;
    const opens = (box) => {
      if (this.isMarked(box) || !leadsTo(box)) return false;
      unfold(box);
      opened++;
      return true;
    };
    for (const box of heaviestBoxes(view, opens)) {
      if (this.isMarked(box)) this.found.push(box);
      this.isCut = this.found.length >= MOST_MATCHES || opened >= MOST_OPENED;
      if (this.isCut) break;
    }
    return this.found;
  }

  /** Shows a match by its number, and how many there are. */
  show(number) {
    const found = this.find();
    if (found.length > 0 && number > 0) {
      this.shown = Math.min(number, found.length);
      this.on.reveal(found[this.shown - 1]);
    }
    this.write();
    this.onStep(this.shown);
  }

  /** Goes on to the next match, or back; behind the last one follows the first. */
  step(by) {
    const { length } = this.on.matches ? this.find() : [];
    if (length > 0) this.show(this.shown === 0 ? (by > 0 ? 1 : length) : ((this.shown - 1 + by + length) % length) + 1);
  }

  /** Writes the count, such as `3 of 17`. */
  write() {
    const { length } = this.find();
    const all = `${number(length)}${this.isCut ? "+" : ""}`;
    this.count.textContent = this.shown > 0 ? `${this.shown} of ${all}` : `${all} ${length === 1 ? "box" : "boxes"}`;
    for (const step of this.element.querySelectorAll("button")) step.disabled = length === 0;
  }
}
