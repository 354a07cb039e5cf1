// The meaning of a search text, for every view.

/** A text that finds one whole name. */
const exactly = (name) => `"${name}"`;

/** The name that a text in quotes finds, or null. */
const exactName = (text) => /^"(.+)"$/.exec(text)?.[1] ?? null;

/**
 * A test of names: the whole name in quotes, `/a regular expression/`, or a part in any case; null if the expression is
 * not valid.
 */
function matcherOf(text) {
  const whole = exactName(text);
  if (whole !== null) return (name) => name === whole;
  if (/^\/.+\/$/.test(text)) {
    try {
      const pattern = new RegExp(text.slice(1, -1), "i");
      return (name) => pattern.test(name);
    } catch {
      return null;
    }
  }
  const lower = text.toLowerCase();
  return (name) => name.toLowerCase().includes(lower);
}
