// Times and words in the address of a page that is a file, as the selections of the API have them.

/** Numbers of the states of threads in the data. */
const STATES = { running: [1], waiting: [2] };

/** Kinds of threads by their names and by the words of the report. */
const THREAD_WORDS = {
  java: ["java"],
  virtual: ["virtual"],
  compiler: ["compiler"],
  jit: ["compiler"],
  "jit compiler": ["compiler"],
  gc: ["gc"],
  vm: ["vm"],
  jvm: ["vm"],
  native: ["native"],
  "native code": ["native"],
};

/** Kinds of frames by their names and by the words of the report. */
const FRAME_WORDS = {
  ...Object.fromEntries(KINDS.map(({ id }) => [id, [id]])),
  java: ["interpreted", "c1", "c2", "jvmci", "inlined", "stub"],
  "native code": ["native", "native_method"],
  jvm: ["vm"],
};

/** Returns the meanings of the values of a parameter; a word without a meaning is an error. */
function wordsOf(selection, name, meanings) {
  return selection.getAll(name).flatMap((value) => {
    const word = value.toLowerCase();
    if (name === "state" && word === "blocked") {
      throw new Error("state: write running or waiting; for blocked, make the page with --state blocked");
    }
    if (!Object.hasOwn(meanings, word)) throw new Error(`${name}: write ${Object.keys(meanings).join(", ")}`);
    return meanings[word];
  });
}

const NS_OF = { ns: 1, us: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9, d: 86400e9 };
const DAY_NS = NS_OF.d;

const TIME_FORMS = "write seconds since the epoch, `now`, a time before the end such as -90s, a time after the start such as 3s, or a time of day in UTC such as 14:03:05";

/** The duration that a text such as 1.5m means, in nanoseconds; null if it is none. */
function durationNs(text) {
  const parts = /^(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)$/.exec(text);
  return parts && Number(parts[1]) * NS_OF[parts[2]];
}

/** The time of day that a text such as 14:03:05 means, in nanoseconds; null if it is none. */
function timeOfDayNs(text) {
  const parts = /^([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?$/.exec(text);
  return parts && (Number(parts[1]) * 3600 + Number(parts[2]) * 60 + Number(parts[3] || 0)) * 1e9;
}

/** The last time of this time of day before the end, or the next one if that is nearer to the profile. */
function nearest(ofDay, start, end) {
  const today = Math.floor(end / DAY_NS) * DAY_NS + ofDay;
  const last = today <= end ? today : today - DAY_NS;
  return last < start && last + DAY_NS - end < start - last ? last + DAY_NS : last;
}

/** The first time of this time of day after a start. */
function firstAfter(ofDay, start) {
  const sameDay = Math.floor(start / DAY_NS) * DAY_NS + ofDay;
  return sameDay > start ? sameDay : sameDay + DAY_NS;
}
