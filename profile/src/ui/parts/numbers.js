// Numbers and times as text, in the form of the command line's reports.

function duration(ns) {
  const s = ns / 1e9;
  if (s >= 10) return `${s.toFixed(1)} s`;
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (ns >= 1e8 || ns === 0) return `${(ns / 1e6).toFixed(0)} ms`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e6).toFixed(3)} ms`;
}

const microseconds = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(1)} µs`);

function percent(share) {
  const value = share * 100;
  if (value > 99.9 && share < 1) return "99.9 %";
  if (value < 0.05 && share > 0) return "<0.1 %";
  return `${value.toFixed(1)} %`;
}

function bytes(count) {
  return count >= 1 << 20 ? `${(count / (1 << 20)).toFixed(1)} MB` : `${(count / 1024).toFixed(1)} KB`;
}

const number = (count) => count.toLocaleString("en");

/** Processors in use, or threads that lived. */
function processors(count) {
  const what = timeName() === TIMES.wall ? "threads" : "processors";
  return count > 0 && count < 0.01 ? `<0.01 ${what}` : `${count.toFixed(2)} ${what}`;
}

const total = (column) => column.reduce((sum, value) => sum + value, 0);

/** Decimals of a second that times in steps of so many nanoseconds need. */
const decimalsOf = (stepNs) => (stepNs >= 1e9 ? 0 : stepNs >= 1e8 ? 1 : stepNs >= 1e7 ? 2 : 3);

/** Local date and time of nanoseconds since the epoch. */
function clock(ns, withSeconds = true, decimals = 0) {
  const time = new Date(ns / 1e6);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const hours = `${two(time.getHours())}:${two(time.getMinutes())}`;
  const fraction = decimals > 0 ? `.${String(time.getMilliseconds()).padStart(3, "0").slice(0, decimals)}` : "";
  return `${day} ${hours}${withSeconds ? `:${two(time.getSeconds())}${fraction}` : ""}`;
}

/** A time as the address has it. */
const seconds = (ns) => (ns / 1e9).toFixed(3);
