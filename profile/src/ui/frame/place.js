// Scrolled places, the cursor and the focus, which stay when the page loads new samples into the same view.

/** Parts that scroll, and the page, which does on narrow screens; not graphs, whose places count from their roots. */
const scrolledParts = () => [document.scrollingElement, ...$("content").querySelectorAll(".pane, .table-scroll")];
/** Lists whose rows can have the focus, and graphs. */
const FOCUSED = "tbody, .processes, .scroll";

/** The scrolled positions and the cursors of graphs of the last view that was replaced. */
let lastPlace = { graphs: [], scrolled: [] };

function keepPlace() {
  lastPlace = {
    graphs: graphs.map((on) => {
      on.keepPlace();
      return { fromRoot: on.fromRoot, cursor: on.cursor && { text: textOf(on.view, on.cursor), depth: on.cursor.depth } };
    }),
    scrolled: scrolledParts().map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]),
  };
}

function restorePlace() {
  const { graphs: places, scrolled } = lastPlace;
  graphs.slice(0, places.length).forEach((on, index) => {
    const { fromRoot, cursor } = places[index];
    const box = cursor && boxAt(on.view, cursor.text);
    on.restore(fromRoot, box?.depth === cursor?.depth ? box : null);
  });
  scrolledParts().slice(0, scrolled.length).forEach((part, index) => part.scrollTo(...scrolled[index]));
}

/** The name of a row, which it has before and after a load. */
const nameOfRow = (row) => row.querySelector(".method, b")?.textContent;

/** The list or graph that has the focus, by its number, and the row of the list; undefined for anything else. */
function focusedPlace() {
  const list = document.activeElement.closest(FOCUSED);
  return list ? { list: [...document.querySelectorAll(FOCUSED)].indexOf(list), row: nameOfRow(document.activeElement) } : undefined;
}

/** Gives the focus back to what `focusedPlace` returned, unless it went elsewhere. */
function restoreFocus(place) {
  if (!place || document.activeElement !== document.body) return;
  const list = document.querySelectorAll(FOCUSED)[place.list];
  const row = place.row && [...(list?.children || [])].find((row) => nameOfRow(row) === place.row);
  (row || list)?.focus({ preventScroll: true });
}
