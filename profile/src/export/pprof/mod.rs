//! pprof: a gzipped protobuf message, read by `go tool pprof`, Grafana, Parca and others.
//!
//! Samples are summed by thread and stack, with two values: `samples/count`, the number of samples, and
//! `cpu/nanoseconds`, their CPU time. Labels have the thread, comments the account of CPU time.
//! Recordings have names instead of addresses, so mappings have no addresses: the first one, named after the program,
//! is for Java code, and each library has one with its build id. Their flags mark the symbols as present, so that
//! readers do not look for them or warn about a missing program.
//!
//! Source: google/pprof, `proto/profile.proto`.

mod message;

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use proto::v1::ThreadKind;
use rustc_hash::FxHashMap;

use self::message::{Function, Label, Line, Location, Mapping, Profile as ProfileMessage, ValueType};
use super::Profiles;
use super::comments::comments;
use super::frames::Frames;
use super::strings::StringTable;
use crate::dictionary::frame_parts::FrameParts;
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;

/// Writes `profile` to `out`.
pub fn write(profile: &ProcessProfile, out: impl Write) -> io::Result<()> {
    let mut message = Message::new(false);
    message.add(profile);
    message.write(out)
}

/// Writes several processes as one profile. Labels `service`, `host` and `pid` distinguish their samples.
pub fn write_each(profiles: Profiles<'_>, out: impl Write) -> Result<(), QueryError> {
    let mut message = Message::new(true);
    for profile in profiles {
        message.add(&profile?);
    }
    Ok(message.write(out)?)
}

/// Tables of the message under construction.
#[derive(Default)]
struct Tables {
    strings: StringTable,
    functions: Vec<Function>,
    by_function: FxHashMap<(i64, i64, i64), u64>,
    mappings: Vec<Mapping>,
    by_mapping: FxHashMap<(i64, i64), u64>,
}

impl Tables {
    fn string(&mut self, text: &str) -> i64 {
        self.strings.intern(text) as i64
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.string(kind), unit: self.string(unit) }
    }

    fn function(&mut self, frame: &FrameParts) -> u64 {
        let name = self.string(&frame.text);
        let system_name = self.string(&frame.system_name());
        let filename = self.string(&frame.file);
        let id = self.functions.len() as u64 + 1;
        *self.by_function.entry((name, system_name, filename)).or_insert_with(|| {
            self.functions.push(Function { id, name, system_name, filename });
            id
        })
    }

    fn mapping(&mut self, file: &str, build_id: &str) -> u64 {
        let (filename, build_id) = (self.string(file), self.string(build_id));
        let id = self.mappings.len() as u64 + 1;
        *self.by_mapping.entry((filename, build_id)).or_insert_with(|| {
            self.mappings.push(Mapping {
                id,
                filename,
                build_id,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
            id
        })
    }
}

/// The message under construction.
struct Message {
    tables: Tables,
    profile: ProfileMessage,
    /// Types of time, each with the number of its first sample; it applies up to the first sample of the next one.
    times: Vec<(&'static str, usize)>,
    /// First and last time of all processes, in nanoseconds since the epoch.
    span_ns: Option<(u64, u64)>,
    is_named: bool,
}

impl Message {
    /// Returns an empty message; with `is_named`, samples have labels with their process.
    fn new(is_named: bool) -> Self {
        let mut tables = Tables { strings: StringTable::with_empty(), ..Tables::default() };
        let sample_type = vec![tables.value_type("samples", "count")];
        let profile = ProfileMessage { sample_type, ..ProfileMessage::default() };
        Message { tables, profile, times: Vec::new(), span_ns: None, is_named }
    }

    fn add(&mut self, profile: &ProcessProfile) {
        self.times.push((profile.session().mode().sample_type(), self.profile.sample.len()));
        let tables = &mut self.tables;
        let mut frames = Frames::new(profile);
        let (thread_key, tid_key) = (tables.string("thread"), tables.string("tid"));
        let mut process = Vec::new();
        if self.is_named {
            let hello = profile.hello();
            for (key, text) in [("service", profile.session().service()), ("host", &hello.host)] {
                let (key, str) = (tables.string(key), tables.string(text));
                process.push(Label { key, str, num: 0 });
            }
            process.push(Label { key: tables.string("pid"), str: 0, num: i64::from(hello.pid) });
        }
        // Ids of pprof begin at 1.
        let first_id = self.profile.location.len() as u64 + 1;
        for (thread, stack, cell) in profile.cells() {
            let known = profile.thread(thread);
            let name = tables.string(profile.thread_name(thread));
            let tid = known.map_or(0, |thread| i64::from(thread.tid));
            let mut label =
                vec![Label { key: thread_key, str: name, num: 0 }, Label { key: tid_key, str: 0, num: tid }];
            if let Some(thread) = known.filter(|thread| thread.kind() == ThreadKind::Virtual) {
                let carrier = profile.thread_name(thread.carrier);
                let (key, str) = (tables.string("carrier"), tables.string(carrier));
                label.push(Label { key, str, num: 0 });
                let key = tables.string("virtual_thread_id");
                label.push(Label { key, str: 0, num: thread.java_id });
            }
            label.extend(&process);
            self.profile.sample.push(message::Sample {
                location_id: frames
                    .stack(stack)
                    .into_iter()
                    .map(|frame| first_id + u64::from(frame))
                    .collect(),
                value: vec![cell.samples as i64, cell.cpu_ns as i64],
                label,
            });
        }
        let program = tables.mapping(profile.session().service(), "");
        for (id, frame) in (first_id..).zip(frames.all()) {
            let function_id = tables.function(frame);
            let mapping_id = match frame.library.as_str() {
                "" => program,
                library => tables.mapping(library, &frame.build_id),
            };
            let line = vec![Line { function_id, line: i64::from(frame.line) }];
            self.profile.location.push(Location { id, mapping_id, line });
        }
        self.profile.comment.extend(comments(profile).iter().map(|comment| tables.string(comment)));
        if self.profile.period == 0 {
            self.profile.period = profile.hello().interval_ns as i64;
        }
        let (first, last) = (profile.start_ns(), profile.start_ns().saturating_add(profile.duration_ns()));
        let (from, to) = self.span_ns.unwrap_or((first, last));
        self.span_ns = Some((from.min(first), to.max(last)));
    }

    /// Adds the types of time; a sample has a value for each, 0 for those of other processes.
    fn set_types(&mut self) {
        let mut types: Vec<&str> = Vec::new();
        let times = std::mem::take(&mut self.times);
        for &(name, _) in &times {
            if !types.contains(&name) {
                types.push(name);
            }
        }
        for (number, sample) in self.profile.sample.iter_mut().enumerate() {
            let after = times.partition_point(|(_, first)| *first <= number);
            let own = times.get(after.wrapping_sub(1)).map(|&(name, _)| name);
            let Some(time) = sample.value.pop() else { continue };
            sample.value.extend(types.iter().map(|&name| if Some(name) == own { time } else { 0 }));
        }
        for name in &types {
            let value_type = self.tables.value_type(name, "nanoseconds");
            self.profile.sample_type.push(value_type);
        }
        let first = types.first().copied().unwrap_or("cpu");
        self.profile.period_type = Some(self.tables.value_type(first, "nanoseconds"));
        self.profile.default_sample_type = self.tables.string(first);
    }

    fn write(mut self, out: impl Write) -> io::Result<()> {
        let (from_ns, to_ns) = self.span_ns.unwrap_or_default();
        self.profile.time_nanos = from_ns as i64;
        self.set_types();
        self.profile.duration_nanos = (to_ns - from_ns) as i64;
        self.profile.mapping = self.tables.mappings;
        self.profile.function = self.tables.functions;
        self.profile.string_table = self.tables.strings.into_texts();
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&self.profile.encode_to_vec())?;
        gzip.finish()?.flush()
    }
}
