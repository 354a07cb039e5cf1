// Boxes of a view by weight. Boxes that no caller opens are not built, so a view of millions of nodes is searched in
// milliseconds.

/** A heap of boxes, the heaviest on top. */
class BoxHeap {
  constructor() {
    this.boxes = [];
  }

  push(box) {
    const { boxes } = this;
    let at = boxes.push(box) - 1;
    for (let above = (at - 1) >> 1; at > 0 && boxes[above].total < box.total; above = (at - 1) >> 1) {
      boxes[at] = boxes[above];
      at = above;
    }
    boxes[at] = box;
  }

  pop() {
    const { boxes } = this;
    const top = boxes[0];
    const last = boxes.pop();
    if (boxes.length === 0) return top;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= boxes.length) break;
      const heavier = left + 1 < boxes.length && boxes[left + 1].total > boxes[left].total ? left + 1 : left;
      if (boxes[heavier].total <= last.total) break;
      boxes[at] = boxes[heavier];
      at = heavier;
    }
    boxes[at] = last;
    return top;
  }
}

/** Boxes from the root, the heaviest first. The boxes below a box follow only if `opens(box)`. */
function* heaviestBoxes(view, opens) {
  const heap = new BoxHeap();
  heap.push(view.root);
  while (heap.boxes.length > 0) {
    const box = heap.pop();
    yield box;
    if (opens(box)) view.children(box).forEach((child) => heap.push(child));
  }
}
