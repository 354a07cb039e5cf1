//! Every export of a session holds what the recording holds: samples, CPU time, and who used it.
//!
//! Files are read back here to guard the code; that they are what other programs expect is checked with those
//! programs, by `collector/tests/readers/check` and, for JFR, by `java-tests/tests/jfr_export.rs`.

use crate::recorded;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use crate::otlp_rules::check_otlp;
use crate::support::{INTERVAL_NS, Stream, realistic, small};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::RowAccessor;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use profile::export::parquet::Table;
use profile::export::{self, Options, collapsed, firefox, jfr, otlp, parquet, pprof, speedscope};
use profile::query::error::QueryError;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::source::recording::Recording;
use profile::source::{Part, Source};
use profile::text::format::Format;
use prost::Message;
use proto::framing::FramingError;
use proto::v1::agent_message::Body;
use proto::v1::{Dictionary, Entries, FrameKind, Lost, SampleBatch, Statistics, ThreadAccount, ThreadKind};
use serde_json::Value as Json;

/// CPU time by thread (kernel thread id) and by what is on top of the stack.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    threads: BTreeMap<u64, u64>,
    leaves: BTreeMap<String, u64>,
}

impl Sums {
    fn add(&mut self, tid: u64, leaf: &str, cpu_ns: u64) {
        *self.threads.entry(tid).or_default() += cpu_ns;
        *self.leaves.entry(leaf.to_owned()).or_default() += cpu_ns;
    }

    fn of(profile: &ProcessProfile) -> Self {
        let dictionary = profile.dictionary();
        let mut sums = Sums::default();
        for (thread, stack, cell) in profile.cells() {
            let leaf = dictionary.frame_text(dictionary.path(stack)[0]).into_owned();
            let tid = profile.thread(thread).map_or(0, |thread| u64::from(thread.tid));
            sums.add(tid, &leaf, cell.cpu_ns);
        }
        sums
    }
}

/// Runs `write` on a small and a realistic session, and on one that was recorded before messages had ids of stacks and
/// counts of biased samples, and compares what `read` sees with the session.
fn check(write: impl Fn(&ProcessProfile, &mut Vec<u8>), read: impl Fn(&[u8]) -> Sums) {
    let profiles = [small().profile(), realistic::shop(true).profile(), recorded::profile(recorded::EARLIER)];
    for profile in profiles {
        assert!(!profile.samples().is_empty());
        let mut bytes = Vec::new();
        write(&profile, &mut bytes);
        assert_eq!(read(&bytes), Sums::of(&profile));
    }
}

#[test]
fn samples_are_what_the_session_counts() {
    let recording = realistic::shop(true).recording();
    let profile = ProcessProfile::whole(&recording).expect("one process");
    let total = profile.total();
    assert_eq!((total.samples, total.cpu_ns), (recording.session().samples, recording.session().sampled_ns));
}

/// An agent turns its recording into the profile without a copy, so that stacks are in memory once.
#[test]
fn a_recording_that_is_given_away_is_the_same_profile() {
    for mut stream in [small(), realistic::shop(true)] {
        let written = |profile: &ProcessProfile| {
            let [mut text, mut pprof, mut jfr] = [const { Vec::new() }; 3];
            collapsed::write(profile, Options { threads: true, ..Options::default() }, &mut text)
                .expect("memory");
            pprof::write(profile, &mut pprof).expect("memory");
            jfr::write(profile, Options::default(), &mut jfr).expect("memory");
            [text, pprof, jfr]
        };
        let given = ProcessProfile::of_recording(stream.recording());
        assert!(written(&stream.profile()) == written(&given));
    }
}

#[test]
fn times_are_wall_clock_times() {
    let profile = small().profile();
    let hello = profile.hello();
    // Synthetic batches begin at 0 of the monotonic clock, which was `monotonic_ns` when the day's was `wall_clock_ns`.
    assert_eq!(profile.samples()[0].time_ns, hello.wall_clock_ns - hello.monotonic_ns + 1_000_000);
}

#[test]
fn a_message_that_is_repeated_counts_once() {
    let mut stream = small();
    let once = stream.profile().samples().len();
    let mut recording = stream.recording();
    let position = stream.messages().len() - 3;
    recording.add(stream.messages()[position].clone());
    assert_eq!(ProcessProfile::whole(&recording).expect("one process").samples().len(), once);
}

#[test]
fn selections_by_thread_and_time() {
    let select = |recording: &Recording, pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let selection = Selection::of(&pairs).expect("a selection");
        ProcessProfile::of(recording, &selection, 0).expect("one process")
    };
    let recording = small().recording();
    assert!(!select(&recording, &[]).is_part());
    let workers = select(&recording, &[("thread", "worker")]);
    assert!(workers.is_part());
    assert_eq!(workers.samples().len(), 3);
    assert_eq!(select(&recording, &[("thread", "nobody")]).samples().len(), 0);
    assert_eq!(select(&recording, &[("frame", "Work.descend")]).samples().len(), 1);
    let nobody = Selection::of(&[("thread".to_owned(), "nobody".to_owned())]).expect("a selection");
    let written =
        export::write(&recording, &nobody, Format::Collapsed, Options::default(), 0, &mut Vec::new());
    assert_eq!(written, Err(QueryError::NoSamples));

    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let stack = stream.java_stack(&["A.main"]);
    (0..100).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
    let recording = stream.recording();
    // Samples lie at 1 to 100 ms of a clock that stood at 55 s when the session began: all are before its start.
    let start = recording.session().hello.wall_clock_ns / 1_000_000_000;
    let start = start.to_string();
    let count = |name| select(&recording, &[(name, &start)]).samples().len();
    assert_eq!((count("to"), count("from")), (100, 0));
}

#[derive(Clone, PartialEq, Message)]
struct PprofFile {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Row>,
    #[prost(message, repeated, tag = "3")]
    mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
    #[prost(int64, repeated, tag = "13")]
    comments: Vec<i64>,
}
#[derive(Clone, PartialEq, Message)]
struct Row {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Label>,
}
#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}
#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "2")]
    mapping: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}
#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}
#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(int64, tag = "2")]
    name: i64,
}
#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
}

fn read_pprof(bytes: &[u8]) -> PprofFile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip");
    PprofFile::decode(plain.as_slice()).expect("protobuf")
}

fn pprof_file(profile: &ProcessProfile) -> PprofFile {
    let mut bytes = Vec::new();
    pprof::write(profile, &mut bytes).expect("memory");
    read_pprof(&bytes)
}

fn pprof_sums(bytes: &[u8]) -> Sums {
    let file = read_pprof(bytes);
    assert_eq!(file.strings[0], "");
    assert!(file.strings[file.comments[0] as usize].contains("of CPU time explained"));
    let mut sums = Sums::default();
    for row in &file.samples {
        let function = file.locations[row.locations[0] as usize - 1].lines[0].function;
        let name = file.functions[function as usize - 1].name;
        let tid = row.labels.iter().find(|label| file.strings[label.key as usize] == "tid");
        let tid = tid.expect("a thread id").number as u64;
        sums.add(tid, &file.strings[name as usize], row.values[1] as u64);
    }
    sums
}

#[test]
fn pprof() {
    check(|profile, out| pprof::write(profile, out).expect("memory"), pprof_sums);
}

fn otlp_sums(bytes: &[u8]) -> Sums {
    let request = ExportProfilesServiceRequest::decode(bytes).expect("protobuf");
    let tables = request.dictionary.expect("a dictionary");
    let mut sums = Sums::default();
    for resource in &request.resource_profiles {
        let profile = &resource.scope_profiles[0].profiles[0];
        for sample in &profile.samples {
            let location = tables.stack_table[sample.stack_index as usize].location_indices[0];
            let function = tables.location_table[location as usize].lines[0].function_index;
            let name = tables.function_table[function as usize].name_strindex;
            let tid = sample.attribute_indices.iter().find_map(|&index| {
                let attribute = &tables.attribute_table[index as usize];
                match attribute.value.as_ref()?.value.as_ref()? {
                    Value::StringValue(tid)
                        if tables.string_table[attribute.key_strindex as usize] == "thread.id" =>
                    {
                        tid.parse().ok()
                    }
                    _ => None,
                }
            });
            let cpu_ns = sample.values[0] * profile.period;
            sums.add(tid.expect("a thread id"), &tables.string_table[name as usize], cpu_ns as u64);
        }
    }
    sums
}

#[test]
fn otlp() {
    check(|profile, out| otlp::write(profile, out).expect("memory"), otlp_sums);
}

/// Receivers take another sample type for another series.
#[test]
fn the_sample_type_of_otlp_does_not_depend_on_the_interval() {
    for (cpu_ns, period_ns, count) in
        [(3 * INTERVAL_NS, INTERVAL_NS, 3), (INTERVAL_NS / 4, INTERVAL_NS / 4, 1), (7, 1, 7)]
    {
        let mut stream = Stream::new();
        let stack = stream.java_stack(&["A.main"]);
        stream.sample(1, stack, cpu_ns);
        let request = otlp::request(&stream.profile(), 7, 9);
        let strings = request.dictionary.expect("a dictionary").string_table;
        let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
        let sample_type = profile.sample_type.expect("a sample type");
        assert_eq!(strings[sample_type.type_strindex as usize], "samples");
        assert_eq!(strings[sample_type.unit_strindex as usize], "count");
        assert_eq!((profile.period as u64, &profile.samples[0].values[..]), (period_ns, &[count][..]));
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (7, 9));
    }
}

/// The requirements of the specification's checker (`profcheck` of the OpenTelemetry project) hold for profiles of real
/// JVMs and for profiles with one kind of frame only.
#[test]
fn otlp_has_what_the_specification_requires() {
    for name in ["h2-25", "planted-17", "planted-25", "lossy-21", "steady-25", "virtual-25"] {
        let profile = recorded::profile(name);
        let request = otlp::request(&profile, profile.start_ns(), profile.duration_ns());
        check_otlp(&request);
        let account = account_of(&request);
        let sums =
            account["tickwalk.sampled_ns"] + account["tickwalk.lost_ns"] + account["tickwalk.unfinished_ns"];
        assert_eq!(account["tickwalk.kernel_ns"], sums, "{name}: the account closes");
    }
    for kind in [FrameKind::C2, FrameKind::Native, FrameKind::Marker] {
        let mut stream = Stream::new();
        let frame = stream.frame(kind, "a/B.c");
        let stack = stream.stack(&[frame], "end_of_stack");
        for thread in [1, 2] {
            stream.thread(thread, "of equal name", ThreadKind::Java);
            stream.sample(thread, stack, 1);
        }
        check_otlp(&otlp::request(&stream.profile(), 1, 2));
    }
}

#[test]
fn libraries_are_mappings_with_their_build_ids() {
    let mut stream = Stream::new();
    let frames = [
        stream.native_frame("read", "/lib/libc.so.6 0123abcd"),
        stream.native_frame("write", "/lib/libc.so.6 0123abcd"),
        stream.native_frame("helper", "/opt/with space/libhelper.so "),
        stream.frame(FrameKind::C2, "a/B.c"),
    ];
    let stack = stream.stack(&frames, "end_of_stack");
    stream.thread(1, "main", ThreadKind::Java);
    stream.sample(1, stack, 1);
    let profile = stream.profile();
    let expected = [
        ("/lib/libc.so.6", "0123abcd"),
        ("/lib/libc.so.6", "0123abcd"),
        ("/opt/with space/libhelper.so", ""),
    ];

    let request = otlp::request(&profile, 1, 2);
    check_otlp(&request);
    let tables = request.dictionary.expect("a dictionary");
    let string = |index: i32| tables.string_table[index as usize].as_str();
    let text = |key: &str, index: &i32| {
        let attribute = &tables.attribute_table[*index as usize];
        assert_eq!(string(attribute.key_strindex), key);
        match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => text.as_str(),
            other => panic!("{other:?}"),
        }
    };
    let build_id = |index: &i32| text("process.executable.build_id.gnu", index);
    // The names of the semantic conventions.
    let locations = tables.stack_table[1].location_indices.iter();
    let types: Vec<_> = locations
        .map(|&index| text("profile.frame.type", &tables.location_table[index as usize].attribute_indices[0]))
        .collect();
    assert_eq!(types, ["native", "native", "native", "jvm"]);
    let mappings: Vec<_> = tables.stack_table[1]
        .location_indices
        .iter()
        .map(|&index| {
            let mapping = &tables.mapping_table[tables.location_table[index as usize].mapping_index as usize];
            (string(mapping.filename_strindex), mapping.attribute_indices.first().map_or("", build_id))
        })
        .collect();
    assert_eq!(mappings[..3], expected);
    assert_eq!((mappings[3], mappings.len(), tables.mapping_table.len()), (("", ""), 4, 3));

    let file = pprof_file(&profile);
    let mappings: Vec<_> = file.samples[0]
        .locations
        .iter()
        .map(|&id| {
            let mapping = &file.mappings[file.locations[id as usize - 1].mapping as usize - 1];
            (
                file.strings[mapping.filename as usize].as_str(),
                file.strings[mapping.build_id as usize].as_str(),
            )
        })
        .collect();
    assert_eq!(mappings[..3], expected);
    assert_eq!((mappings[3].1, file.mappings.len()), ("", 3));
}

/// The attributes of a profile that are whole numbers.
fn account_of(request: &ExportProfilesServiceRequest) -> BTreeMap<String, i64> {
    let tables = request.dictionary.as_ref().expect("a dictionary");
    let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
    let attributes = profile.attribute_indices.iter().map(|&index| &tables.attribute_table[index as usize]);
    let numbers = attributes.filter_map(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => {
            Some((tables.string_table[attribute.key_strindex as usize].clone(), *number))
        }
        _ => None,
    });
    numbers.collect()
}

fn speedscope_sums(bytes: &[u8]) -> Sums {
    let file: Json = serde_json::from_slice(bytes).expect("JSON");
    let list = |value: &Json| value.as_array().expect("a list").clone();
    let mut sums = Sums::default();
    for thread in list(&file["profiles"]) {
        let name = thread["name"].as_str().expect("text");
        let tid = name.rsplit_once("(tid ").map_or("0", |(_, tid)| tid.trim_end_matches(')'));
        for (stack, weight) in list(&thread["samples"]).iter().zip(list(&thread["weights"])) {
            let leaf = list(stack).pop().and_then(|leaf| leaf.as_u64()).expect("a frame");
            let leaf = file["shared"]["frames"][leaf as usize]["name"].as_str().expect("text");
            sums.add(tid.parse().expect("a number"), leaf, weight.as_u64().expect("a number"));
        }
    }
    sums
}

#[test]
fn speedscope() {
    check(
        |profile, out| speedscope::write(profile, Options::default(), out).expect("memory"),
        speedscope_sums,
    );
}

/// A method with one interval in its line 10 and three in line 12.
fn of_two_lines() -> ProcessProfile {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    for (bci, line, times) in [(1, 10, 1), (9, 12, 3)] {
        let frame = stream.frame_at(FrameKind::C2, "a/B.c", bci);
        stream.line(line);
        let stack = stream.stack(&[frame], "end_of_stack");
        stream.sample(1, stack, times * INTERVAL_NS);
    }
    stream.goodbye();
    stream.profile()
}

/// Formats whose frames have lines besides names; JFR is read by `java-tests/measure/truth.py`.
#[test]
fn lines_have_their_cpu_time() {
    let profile = of_two_lines();
    let expected = BTreeMap::from([(10, INTERVAL_NS), (12, 3 * INTERVAL_NS)]);

    let file = pprof_file(&profile);
    let of_row = |row: &Row| {
        let line = file.locations[row.locations[0] as usize - 1].lines[0].line;
        (line, row.values[1] as u64)
    };
    assert_eq!(file.samples.iter().map(of_row).collect::<BTreeMap<_, _>>(), expected, "pprof");

    let request = otlp::request(&profile, 1, 2);
    let tables = request.dictionary.expect("a dictionary");
    let written = &request.resource_profiles[0].scope_profiles[0].profiles[0];
    let of_sample = |sample: &opentelemetry_proto::tonic::profiles::v1development::Sample| {
        let location = tables.stack_table[sample.stack_index as usize].location_indices[0];
        let line = tables.location_table[location as usize].lines[0].line;
        (line, (sample.values[0] * written.period) as u64)
    };
    assert_eq!(written.samples.iter().map(of_sample).collect::<BTreeMap<_, _>>(), expected, "OTLP");

    let (mut samples_file, mut stacks_file) = (Vec::new(), Vec::new());
    parquet::write(&profile, Table::Samples, &mut samples_file).expect("memory");
    parquet::write(&profile, Table::Stacks, &mut stacks_file).expect("memory");
    let of_stack = |row: ::parquet::record::Row| {
        let ::parquet::record::Field::Group(details) = &row.get_list(3).expect("a list").elements()[0] else {
            panic!("{row}");
        };
        let line = details.get_int(3).expect("a line");
        (row.get_long(0).expect("an id"), i64::from(line))
    };
    let lines: BTreeMap<i64, i64> = table_rows(stacks_file).into_iter().map(of_stack).collect();
    let of_row = |row: ::parquet::record::Row| {
        (lines[&row.get_long(6).expect("a stack")], row.get_long(7).expect("CPU time") as u64)
    };
    assert_eq!(
        table_rows(samples_file).into_iter().map(of_row).collect::<BTreeMap<_, _>>(),
        expected,
        "Parquet"
    );
}

/// Two lines of one method are one frame, or two if lines are requested.
#[test]
fn lines_of_a_method_are_frames_on_request() {
    let profile = of_two_lines();
    for (lines, expected) in [(false, "a.B.c 4\n"), (true, "a.B.c:10 1\na.B.c:12 3\n")] {
        let options = Options { lines, ..Options::default() };
        let (mut text, mut json) = (Vec::new(), Vec::new());
        collapsed::write(&profile, options, &mut text).expect("memory");
        assert_eq!(String::from_utf8(text).expect("text"), expected);
        speedscope::write(&profile, options, &mut json).expect("memory");
        let json: Json = serde_json::from_slice(&json).expect("JSON");
        let frames = json["shared"]["frames"].as_array().expect("a list");
        let found: Vec<_> = frames.iter().map(|frame| frame["line"].as_u64()).collect();
        assert_eq!(found, if lines { vec![Some(10), Some(12)] } else { vec![None] });
    }
}

fn firefox_sums(bytes: &[u8]) -> Sums {
    let file: Json = serde_json::from_slice(bytes).expect("JSON");
    let number = |value: &Json| value.as_u64().expect("a number") as usize;
    let mut sums = Sums::default();
    for thread in file["threads"].as_array().expect("a list") {
        let tid = match &thread["tid"] {
            // Equal ids of several processes get a suffix.
            Json::String(tid) => {
                let (id, _) = tid.split_once('.').unwrap_or((tid, ""));
                id.parse().expect("a number")
            }
            tid => tid.as_u64().expect("a number"),
        };
        let samples = &thread["samples"];
        for row in 0..number(&samples["length"]) {
            // The row before a thread's first sample has neither a stack nor a weight.
            if samples["stack"][row].is_null() {
                assert_eq!(
                    (number(&samples["weight"][row]), number(&samples["threadCPUDelta"][row])),
                    (0, 0)
                );
                continue;
            }
            let frame = number(&thread["stackTable"]["frame"][number(&samples["stack"][row])]);
            let function = number(&thread["frameTable"]["func"][frame]);
            let name = number(&thread["funcTable"]["name"][function]);
            let strings = [&thread["stringArray"], &file["shared"]["stringArray"]];
            let leaf = strings.iter().find_map(|strings| strings[name].as_str()).expect("a name");
            let cpu_ns = number(&samples["threadCPUDelta"][row]) as u64 * 1000;
            assert_eq!(number(&samples["weight"][row]) as u64 * INTERVAL_NS, cpu_ns);
            sums.add(tid, leaf, cpu_ns);
        }
    }
    sums
}

#[test]
fn firefox() {
    check(|profile, out| firefox::write(profile, out).expect("memory"), firefox_sums);
}

fn parquet_sums(samples_file: Vec<u8>, stacks_file: Vec<u8>) -> Sums {
    let mut leaves = BTreeMap::new();
    for row in table_rows(stacks_file) {
        let frames = row.get_list(2).expect("a list");
        assert_eq!(frames.len(), row.get_list(3).expect("a list").len());
        let ::parquet::record::Field::Str(leaf) = &frames.elements()[0] else {
            panic!("{frames:?}");
        };
        let known = leaves.insert(row.get_long(0).expect("an id"), leaf.clone());
        assert_eq!(known, None, "a stack has one row");
    }
    let mut sums = Sums::default();
    for row in table_rows(samples_file) {
        let leaf = &leaves[&row.get_long(6).expect("a stack")];
        let tid = row.get_long(4).expect("a thread") as u64;
        sums.add(tid, leaf, row.get_long(7).expect("CPU time") as u64);
    }
    sums
}

#[test]
fn parquet() {
    for mut stream in [small(), realistic::shop(true)] {
        let profile = stream.profile();
        let (mut samples_file, mut stacks_file) = (Vec::new(), Vec::new());
        parquet::write(&profile, Table::Samples, &mut samples_file).expect("memory");
        parquet::write(&profile, Table::Stacks, &mut stacks_file).expect("memory");
        assert_eq!(parquet_sums(samples_file, stacks_file), Sums::of(&profile));
    }
}

/// Recordings as one source.
struct Several(Vec<Recording>);

impl Source for Several {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        self.0.iter().flat_map(Source::parts).collect()
    }

    fn end_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(Source::end_ns).max()
    }

    fn cut(&self) -> Option<FramingError> {
        None
    }
}

/// Several processes are one file in every format, with the sums of all; the file has the process of each sample.
#[test]
fn a_selection_of_several_processes_is_one_file() {
    let (mut one, mut other, mut third) = (small(), realistic::shop(true), small());
    for (stream, id) in [(&mut one, 1), (&mut other, 2), (&mut third, 3)] {
        stream.rename(id);
        stream.set_pid(id as u32);
    }
    let mut expected = Sums::default();
    let mut events = 0;
    for stream in [&mut one, &mut other, &mut third] {
        let profile = stream.profile();
        events += profile.total().samples;
        let sums = Sums::of(&profile);
        sums.threads.into_iter().for_each(|(tid, ns)| *expected.threads.entry(tid).or_default() += ns);
        sums.leaves.into_iter().for_each(|(leaf, ns)| *expected.leaves.entry(leaf).or_default() += ns);
    }
    let several = Several(vec![one.recording(), other.recording(), third.recording()]);
    let export = |format, options| {
        let mut bytes = Vec::new();
        export::write(&several, &Selection::default(), format, options, 0, &mut bytes).expect("memory");
        bytes
    };
    let plain = |format| export(format, Options::default());
    let profile = plain(Format::Pprof);
    assert_eq!(pprof_sums(&profile), expected);
    let file = read_pprof(&profile);
    let label = |row: &Row, key: &str| {
        let label = row.labels.iter().find(|label| file.strings[label.key as usize] == key).expect("a label");
        (file.strings[label.text as usize].clone(), label.number)
    };
    let processes: BTreeSet<_> =
        file.samples.iter().map(|row| (label(row, "service").0, label(row, "pid").1)).collect();
    let service = "com.example.shop.Application";
    assert_eq!(processes, (1..=3).map(|pid| (service.to_owned(), pid)).collect());
    let otlp = plain(Format::Otlp);
    assert_eq!(otlp_sums(&otlp), expected);
    let request = ExportProfilesServiceRequest::decode(&*otlp).expect("protobuf");
    assert_eq!(request.resource_profiles.len(), 3);
    check_otlp(&request);
    assert_eq!(speedscope_sums(&plain(Format::Speedscope)), expected);
    assert_eq!(firefox_sums(&plain(Format::Firefox)), expected);
    let table = |table| export(Format::Parquet, Options { table: Some(table), ..Options::default() });
    assert_eq!(parquet_sums(table(Table::Samples), table(Table::Stacks)), expected);
    let jfr = plain(Format::Jfr);
    assert_eq!((chunks(&jfr).len(), most_frequent(&jfr)), (3, events));
    let unit = collapsed::Unit::Nanoseconds;
    let stacks =
        String::from_utf8(export(Format::Collapsed, Options { unit, ..Options::default() })).expect("text");
    let sum: u64 = stacks
        .lines()
        .map(|line| line.rsplit_once(' ').and_then(|(_, ns)| ns.parse::<u64>().ok()).expect("a number"))
        .sum();
    assert_eq!(sum, expected.threads.values().sum::<u64>());
    let roots: BTreeSet<&str> = stacks.lines().filter_map(|line| line.split(';').next()).collect();
    let expected: Vec<String> = (1..=3).map(|pid| format!("{service} ({pid})")).collect();
    assert_eq!(roots.into_iter().collect::<Vec<_>>(), expected);
    // A process without samples in the selection is left out.
    let pairs = [("frame".to_owned(), "Work.descend".to_owned())];
    let selection = Selection::of(&pairs).expect("a selection");
    let mut bytes = Vec::new();
    export::write(&several, &selection, Format::Otlp, Options::default(), 0, &mut bytes).expect("memory");
    let request = ExportProfilesServiceRequest::decode(&*bytes).expect("protobuf");
    assert_eq!(request.resource_profiles.len(), 2);
}

fn table_rows(bytes: Vec<u8>) -> Vec<::parquet::record::Row> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("Parquet");
    reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect()
}

#[test]
fn tables_of_several_sessions_are_read_as_one() {
    const SEARCH: [&str; 2] = ["shop/Main.main", "shop/Search.find"];
    const PAY: [&str; 2] = ["shop/Main.main", "shop/Cart.pay"];
    // Each session hands its numbers out in another order, one with a stack of its own.
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut stacks: BTreeMap<i64, String> = BTreeMap::new();
    let mut joined = Vec::new();
    for (session, order) in [(1, [SEARCH, PAY]), (2, [PAY, SEARCH])] {
        let mut stream = Stream::of_session(session);
        stream.thread(1, "main", ThreadKind::Java);
        if session == 2 {
            let own = stream.java_stack(&["shop/Main.start"]);
            stream.sample(1, own, INTERVAL_NS);
        }
        for methods in order {
            let stack = stream.java_stack(&methods);
            stream.sample(1, stack, INTERVAL_NS);
        }
        // The same once more, but for a byte code index that the table does not have.
        let again = stream.frame_at(FrameKind::C2, "shop/Cart.pay", 8);
        let main = stream.frame(FrameKind::C2, "shop/Main.main");
        let again = stream.stack(&[again, main], "end_of_stack");
        stream.sample(1, again, INTERVAL_NS);
        let profile = stream.profile();
        let (mut samples_file, mut stacks_file) = (Vec::new(), Vec::new());
        parquet::write(&profile, Table::Samples, &mut samples_file).expect("memory");
        parquet::write(&profile, Table::Stacks, &mut stacks_file).expect("memory");
        let mut in_session = 0;
        for row in table_rows(stacks_file) {
            let content = format!("{:?} {:?}", row.get_string(1), row.get_list(3));
            let id = row.get_long(0).expect("an id");
            assert_eq!(stacks.entry(id).or_insert_with(|| content.clone()), &content, "one id, one stack");
            in_session += 1;
        }
        assert_eq!(in_session, if session == 2 { 3 } else { 2 }, "a row a stack");
        joined.extend(table_rows(samples_file));
    }
    assert_eq!(stacks.len(), 3, "one stack, one id: {stacks:?}");
    for row in joined {
        let stack = &stacks[&row.get_long(6).expect("a stack")];
        let method = ["find", "pay", "start"].into_iter().find(|&name| stack.contains(name)).expect("known");
        *sums.entry(method.to_owned()).or_default() += row.get_long(7).expect("CPU time") as u64;
    }
    let expected = [("find", 2), ("pay", 4), ("start", 1)];
    assert_eq!(sums, expected.map(|(name, samples)| (name.to_owned(), samples * INTERVAL_NS)).into());
}

/// Types and fields of the events in a chunk of a flight recording: (type id, bytes after it).
fn events(chunk: &[u8]) -> Vec<(u64, &[u8])> {
    let mut events = Vec::new();
    let mut rest = &chunk[68..];
    while !rest.is_empty() {
        let mut fields = rest;
        let size = number(&mut fields) as usize;
        let (event, after) = rest.split_at(size);
        let mut fields = &event[event.len() - (size - (rest.len() - fields.len()))..];
        let class = number(&mut fields);
        events.push((class, fields));
        rest = after;
    }
    events
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        let last = shift == 56;
        value |= u64::from(if last { byte } else { byte & 0x7f }) << shift;
        if last || byte < 0x80 {
            break;
        }
    }
    value
}

/// Chunks of a flight recording: each has its size and the positions of its metadata and constants.
fn chunks(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], *b"FLR\0\0\x02\0\0");
        let field =
            |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
        let (size, constants, metadata, duration) = (field(8), field(16), field(24), field(40));
        assert!(duration > 0);
        let (chunk, rest) = bytes.split_at(size);
        for (at, class) in [(metadata, 0), (constants, 1)] {
            let mut event = &chunk[at..];
            number(&mut event);
            assert_eq!(number(&mut event), class);
        }
        chunks.push(chunk);
        bytes = rest;
    }
    chunks
}

/// Number of events of the type that occurs most, in all chunks.
fn most_frequent(bytes: &[u8]) -> u64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for chunk in chunks(bytes) {
        events(chunk).into_iter().for_each(|(class, _)| *counts.entry(class).or_default() += 1);
    }
    counts.into_values().max().unwrap_or_default()
}

#[test]
fn jfr_has_an_event_for_each_sample() {
    for profile in [realistic::shop(true).profile(), recorded::profile(recorded::EARLIER)] {
        let mut bytes = Vec::new();
        jfr::write(&profile, Options::default(), &mut bytes).expect("memory");
        assert_eq!(chunks(&bytes).len(), 1);
        assert_eq!(most_frequent(&bytes), profile.total().samples);
    }
}

/// Pyroscope's reader refuses a recording that lacks the description of one of these types.
#[test]
fn jfr_describes_the_types_that_readers_require() {
    let mut bytes = Vec::new();
    jfr::write(&realistic::shop(true).profile(), Options::default(), &mut bytes).expect("memory");
    for name in [
        "int",
        "long",
        "short",
        "float",
        "boolean",
        "java.lang.String",
        "java.lang.Thread",
        "java.lang.Class",
        "jdk.types.FrameType",
        "jdk.types.ThreadState",
        "jdk.types.Method",
        "jdk.types.Package",
        "jdk.types.Symbol",
        "jdk.types.StackTrace",
        "jdk.types.ClassLoader",
        "jdk.types.StackFrame",
    ] {
        // A string in UTF-8: its kind, its length and its bytes.
        let string = [&[3, name.len() as u8], name.as_bytes()].concat();
        assert!(bytes.windows(string.len()).any(|window| window == string), "{name}");
    }
}

#[test]
fn a_long_flight_recording_is_several_chunks() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let stack = stream.java_stack(&["A.main", "A.work"]);
    let count = 1_000_000;
    (0..count).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
    let profile = stream.profile();
    let mut bytes = Vec::new();
    jfr::write(&profile, Options::default(), &mut bytes).expect("memory");
    assert!(chunks(&bytes).len() > 1);
    assert_eq!(most_frequent(&bytes), count);
}

/// Tools know the types of frames that the JVM writes, and drop or misread others.
#[test]
fn jfr_has_the_types_of_frames_that_tools_know() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    use FrameKind::{C1, C2, Inlined, Interpreted, Marker, Native, NativeMethod, Stub, Vm};
    let java = [Interpreted, C1, C2, Inlined, NativeMethod].map(|kind| stream.frame(kind, "a/B.c"));
    let others = [Stub, Native, Vm, Marker].map(|kind| stream.frame(kind, "symbol"));
    let stack = stream.stack(&[&java[..], &others].concat(), "end_of_stack");
    stream.sample(1, stack, 1);
    stream.goodbye();
    let profile = stream.profile();
    let mut bytes = Vec::new();
    jfr::write(&profile, Options::default(), &mut bytes).expect("memory");
    let has = |text: &&str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let types = ["Interpreted", "JIT compiled", "Inlined", "Native", "C1 compiled", "C++"];
    assert_eq!(types.into_iter().filter(has).collect::<Vec<_>>(), types);
    let others = ["Unknown", "Stub", "Marker", "JVMCI compiled"];
    assert_eq!(others.into_iter().filter(has).collect::<Vec<_>>(), [""; 0]);
}

/// The session in every format: pprof, OTLP, speedscope, Firefox, JFR, and the tables of Parquet.
fn export_all(stream: &mut Stream) -> [Vec<u8>; 7] {
    let profile = stream.profile();
    let mut files: [Vec<u8>; 7] = Default::default();
    let [first, second, third, fourth, fifth, sixth, seventh] = &mut files;
    pprof::write(&profile, first).expect("memory");
    otlp::write(&profile, second).expect("memory");
    speedscope::write(&profile, Options::default(), third).expect("memory");
    firefox::write(&profile, fourth).expect("memory");
    jfr::write(&profile, Options::default(), &mut *fifth).expect("memory");
    parquet::write(&profile, Table::Samples, sixth).expect("memory");
    parquet::write(&profile, Table::Stacks, seventh).expect("memory");
    files
}

#[test]
fn a_session_without_samples_can_be_exported() {
    let mut stream = Stream::new();
    stream.goodbye();
    let files = export_all(&mut stream);
    assert_eq!(chunks(&files[4]).len(), 1);
    assert!(files.iter().all(|file| !file.is_empty()));
}

/// A stream may hold anything; exports show what they cannot name and stop at no number.
#[test]
fn hostile_sessions_can_be_exported() {
    let mut stream = small();
    stream.thread(9, "a;b\u{0}\"<c>", ThreadKind::Unspecified);
    let odd = stream.frame(FrameKind::C2, "[I/;\u{1F600}.<init>");
    let unknown_frame = 77;
    let odd_row = 1 << 20;
    let stacks = [
        stream.stack(&[odd, unknown_frame, odd_row], ""),
        stream.stack(&[unknown_frame; 3_000], "depth_limit"),
        stream.stack(&[], ""),
        /* never defined */ 1 << 21,
    ];
    for stack in stacks {
        for (thread, cpu_ns) in [(9, u64::MAX), (9, u64::MAX), (u32::MAX, 1), (0, 0)] {
            stream.sample(thread, stack, cpu_ns);
        }
    }
    let kind = FrameKind::Marker as i32 + 1_000;
    let entries = Entries {
        first_frame: odd_row,
        frame_kind: vec![kind],
        frame_method: vec![0],
        frame_bci: vec![i32::MIN],
        frame_line: vec![u32::MAX],
        frame_symbol: vec![1 << 20],
        frame_library: vec![1 << 20],
        ..Default::default()
    };
    stream.send(Body::Dictionary(Dictionary { entries: Some(entries), ..Default::default() }));
    stream.send(Body::Samples(SampleBatch {
        first_time_ns: u64::MAX,
        time_delta_us: vec![u64::MAX, 1],
        thread: vec![1, 2, 3],
        node: vec![1 << 21; 5],
        cpu_unit_ns: 1,
        cpu_units: vec![u64::MAX; 4],
        flags: Vec::new(),
        count: vec![u64::MAX, 0],
        clock_shift_ms: i64::MIN,
    }));
    let lost = vec![Lost { cause: "queue_full".into(), count: u64::MAX, ns: u64::MAX }; 2];
    let account = ThreadAccount { thread: 9, lost: lost.clone(), ..Default::default() };
    stream.send(Body::Statistics(Statistics { threads: vec![account], lost, ..Default::default() }));
    let files = export_all(&mut stream);
    assert!(files.iter().all(|file| !file.is_empty()));
    // The small session's 10 samples, 16 more, and three rows of which one claims to be any number of samples.
    assert_eq!(most_frequent(&files[4]), 10 + 16 + 1_000 + 1 + 1);
}

#[test]
fn merged_samples_are_separate_events_in_a_flight_recording() {
    let mut stream = Stream::new();
    let stack = stream.java_stack(&["A.main"]);
    stream.send(Body::Samples(SampleBatch {
        time_delta_us: vec![0, 0],
        thread: vec![1, 1],
        node: vec![stack; 2],
        cpu_unit_ns: 1,
        cpu_units: vec![7 * INTERVAL_NS + 3, INTERVAL_NS],
        count: vec![7, 1],
        ..Default::default()
    }));
    let profile = stream.profile();
    assert_eq!(profile.total().samples, 8);
    let mut bytes = Vec::new();
    jfr::write(&profile, Options::default(), &mut bytes).expect("memory");
    assert_eq!(most_frequent(&bytes), 8);
}
