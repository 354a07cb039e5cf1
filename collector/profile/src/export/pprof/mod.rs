//! pprof: a gzipped protobuf message, read by `go tool pprof`, Grafana, Parca and others.
//!
//! Samples are summed by thread and stack, with two values: `samples/count`, the number of samples, and
//! `cpu/nanoseconds`, their CPU time. Labels have the thread, comments the account of CPU time.
//! Recordings hold names instead of addresses, so mappings have no addresses: the first one, named like the program,
//! represents Java code, and each library has one with its build id. Their flags mark the symbols as present, otherwise
//! readers look for them and warn about the missing program name.
//!
//! Source: google/pprof, `proto/profile.proto`.

mod message;

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use prost::Message;
use proto::v1::ThreadKind;
use rustc_hash::FxHashMap;

use self::message::{Function, Label, Line, Location, Mapping, Profile as ProfileMessage, ValueType};
use super::comments::comments;
use super::frames::{FrameParts, Frames};
use super::strings::StringTable;
use crate::process::ProcessProfile;

/// Writes `profile` to `out`.
///
/// # Errors
/// If writing fails.
pub fn write(profile: &ProcessProfile, out: impl Write) -> io::Result<()> {
    let bytes = message(profile).encode_to_vec();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&bytes)?;
    gzip.finish()?.flush()
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

    /// Returns the id of the function of `frame`.
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

    /// Returns the id of the mapping with this file and build id.
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

fn message(profile: &ProcessProfile) -> ProfileMessage {
    let cells = profile.cells();
    let mut tables = Tables { strings: StringTable::with_empty(), ..Tables::default() };
    let mut frames = Frames::new(profile);
    let sample_type = vec![tables.value_type("samples", "count"), tables.value_type("cpu", "nanoseconds")];
    let (thread_key, tid_key) = (tables.string("thread"), tables.string("tid"));
    let mut rows = Vec::with_capacity(cells.len());
    for (thread, stack, cell) in cells {
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
        rows.push(message::Sample {
            location_id: frames.stack(stack).into_iter().map(location_id).collect(),
            value: vec![cell.samples as i64, cell.cpu_ns as i64],
            label,
        });
    }
    let program = tables.mapping(profile.session().service(), "");
    let location = (0u32..)
        .zip(frames.all())
        .map(|(number, frame)| {
            let function_id = tables.function(frame);
            let mapping_id = match frame.library.as_str() {
                "" => program,
                library => tables.mapping(library, &frame.build_id),
            };
            Location {
                id: location_id(number),
                mapping_id,
                line: vec![Line { function_id, line: i64::from(frame.line) }],
            }
        })
        .collect();
    let comment = comments(profile).iter().map(|comment| tables.string(comment)).collect();
    ProfileMessage {
        sample_type,
        sample: rows,
        mapping: std::mem::take(&mut tables.mappings),
        location,
        function: std::mem::take(&mut tables.functions),
        time_nanos: profile.start_ns() as i64,
        duration_nanos: profile.duration_ns() as i64,
        period_type: Some(tables.value_type("cpu", "nanoseconds")),
        period: profile.hello().interval_ns as i64,
        comment,
        default_sample_type: tables.string("cpu"),
        string_table: tables.strings.into_texts(),
    }
}

/// Ids of pprof begin at 1.
fn location_id(frame: u32) -> u64 {
    u64::from(frame) + 1
}
