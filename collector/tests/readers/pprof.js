// Prints a pprof file as JSON: {types, samples: [{values, thread, tid, leaf}]}, through Datadog's decoder.
const fs = require("fs");
const zlib = require("zlib");
const { Profile } = require("pprof-format");

const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
const text = (position) => profile.stringTable.strings[Number(position)];
const functions = new Map(profile.function.map((entry) => [String(entry.id), text(entry.name)]));
const locations = new Map(
  profile.location.map((entry) => [String(entry.id), functions.get(String(entry.line[0].functionId))]),
);
const samples = profile.sample.map((sample) => {
  const labels = Object.fromEntries(sample.label.map((label) => [text(label.key), label]));
  return {
    values: sample.value.map(Number),
    thread: text(labels.thread.str),
    tid: Number(labels.tid.num),
    leaf: locations.get(String(sample.locationId[0])),
  };
});
const types = profile.sampleType.map((type) => `${text(type.type)}/${text(type.unit)}`);
const comments = profile.comment.map(text);
console.log(JSON.stringify({ types, period: Number(profile.period), comments, samples }));
