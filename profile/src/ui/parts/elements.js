// Elements of the document: buttons, search boxes, tooltips, tables.

const $ = (id) => document.getElementById(id);

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.filter((part) => part !== undefined && part !== null));
  return made;
}

function button(className, title, onClick) {
  const made = element("button", className, title);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

function press(pairs) {
  for (const [pressed, isPressed] of pairs) pressed.setAttribute("aria-pressed", String(isPressed));
}

/** Fills `target` with a button for each [value, title]; `onChoose` receives the value of the button. */
function segments(target, entries, chosen, onChoose) {
  target.replaceChildren(...entries.map(([value, title]) => {
    const made = button("", title, () => onChoose(value));
    press([[made, value === chosen]]);
    return made;
  }));
}

/** Scrolls a strip of buttons so that the pressed one is in the middle, as far as that is possible. */
function showPressed(strip) {
  const pressed = strip.querySelector('[aria-pressed="true"]');
  if (pressed) strip.scrollLeft += pressed.getBoundingClientRect().left - strip.getBoundingClientRect().left - (strip.clientWidth - pressed.clientWidth) / 2;
}

/** Two buttons [title, tooltip] of which one is pressed; `onChange` receives whether it is the second. */
function toggle(id, titles, isSecond, onChange) {
  const group = element("div", "segments");
  group.setAttribute("role", "group");
  titles.forEach(([title, hint], index) => {
    const made = button("", title, () => {
      // A key clicks the second button and switches back and forth.
      const next = index === 1 && made.getAttribute("aria-pressed") === "true" ? 0 : index;
      press([...group.children].map((other, place) => [other, place === next]));
      onChange(next === 1);
    });
    made.title = hint;
    if (index === 1) made.id = id;
    press([[made, Number(Boolean(isSecond)) === index]]);
    group.append(made);
  });
  return group;
}

/** A colour sample with a text. */
function swatched(title, colour, className = "swatch") {
  const swatch = element("i", className);
  swatch.style.background = colour;
  return element("span", "", swatch, title);
}

/** The content of a view that has nothing to show. */
function nothing(text) {
  const isSelected = selection().length > 0;
  const all = button("plain", "Show everything", () => go(Object.fromEntries(SELECTION.map((name) => [name, null]))));
  return element("div", "empty", element("p", "", text), isSelected ? all : "");
}

// ---- Tooltip and notices ----

function showTip(event, ...content) {
  const tip = $("tip");
  tip.hidden = false;
  tip.replaceChildren(...content);
  placeTip(event);
}

/** Places the tooltip beside the mouse, inside the window. */
function placeTip(event) {
  const tip = $("tip");
  placeTip.last = event;
  const { width, height } = tip.getBoundingClientRect();
  const isLow = event.clientY + 20 + height > window.innerHeight;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - width - 10))}px`;
  tip.style.top = `${isLow ? Math.max(8, event.clientY - height - 12) : event.clientY + 20}px`;
}

function hideTip() {
  $("tip").hidden = true;
}

function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 1800);
}

// ---- Tables ----

/**
 * A table with columns [title, className, cell(row), sortValue(row) or null, tooltip]. The address keeps the column
 * that orders the rows.
 */
function table(columns, rows, onRow, empty) {
  const byDefault = columns.findIndex(([, , , value]) => value);
  let sorted = columns[Number(state.sort)]?.[3] ? Number(state.sort) : byDefault;
  const body = element("tbody");
  const heads = columns.map(([title, className, , value, hint], index) => {
    const head = element("th", `${className}${value ? " sortable" : ""}`, title);
    head.title = hint || (value ? `Sort by ${title.toLowerCase()}` : "");
    if (value) {
      onPress(head, () => {
        sorted = index;
        fill();
        // The order may decide which rows the answer contains, so the view is loaded again.
        go({ sort: index === byDefault ? null : String(index) }, true);
      });
    }
    return head;
  });
  function fill() {
    const value = columns[sorted]?.[3];
    const ordered = value ? [...rows].sort((a, b) => value(b) - value(a)) : rows;
    heads.forEach((head, index) => {
      head.classList.toggle("sorted", index === sorted);
      head.setAttribute("aria-sort", index === sorted ? "descending" : "none");
    });
    body.replaceChildren(...ordered.map((row) => {
      const line = element("tr", "", ...columns.map(([, className, cell]) => cellOf(className, cell(row))));
      if (onRow) onPress(line, () => onRow(row));
      return line;
    }));
    if (rows.length === 0) {
      const none = element("td", "none", empty);
      none.colSpan = columns.length;
      body.append(element("tr", "", none));
    }
  }
  fill();
  return element("table", "", element("thead", "", element("tr", "", ...heads)), body);
}

/** Makes an element react to a click, and to Enter when it has the focus. */
function onPress(target, action) {
  target.tabIndex = 0;
  target.dataset.press = "";
  target.addEventListener("click", action);
}

function cellOf(className, content) {
  const cell = element("td", className);
  cell.append(...(Array.isArray(content) ? content : [content]));
  return cell;
}

function methodCell(name) {
  const [place, short] = splitName(name);
  return place ? [short, element("small", "", place.slice(0, -1))] : [short];
}
