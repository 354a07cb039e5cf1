//! OTLP profiles: the request that OpenTelemetry's collectors and back ends accept, for files and for forwarding.
//!
//! Samples are summed by thread and stack, as totals without times, the only one of three forms that all receivers
//! accept. The sample type is `samples/count` with a period of `cpu/nanoseconds`: a value counts sampling intervals, so
//! value times period is the CPU time to the nanosecond. Receivers recognise that pair as a CPU profile. If the interval
//! is unknown or a value would not be an integer, the sample type is `cpu/nanoseconds`.
//!
//! Source: opentelemetry-proto 1.10 to 1.11, `profiles/v1development`; element 0 of every table is the empty one.

use std::io::{self, Write};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile as OtlpProfile, ProfilesDictionary,
    ResourceProfiles, Sample as OtlpSample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use proto::v1::{FrameKind, ThreadKind};
use rustc_hash::FxHashMap;

use super::frames::{FrameParts, Frames};
use super::strings::StringTable;
use crate::cell::Cell;
use crate::process::ProcessProfile;
use crate::summary::Summary;

/// Writes `profile` to `out` as one request, unframed.
///
/// # Errors
/// If writing fails.
pub fn write(profile: &ProcessProfile, mut out: impl Write) -> io::Result<()> {
    let request = request(profile, profile.start_ns(), profile.duration_ns());
    out.write_all(&request.encode_to_vec())?;
    out.flush()
}

/// Returns the request with the samples of `profile`, taken within `duration_ns` from `start_ns`, ns since the epoch.
///
/// The profile's id is derived from the session and the start, so receivers can recognise a repeated request.
pub fn request(profile: &ProcessProfile, start_ns: u64, duration_ns: u64) -> ExportProfilesServiceRequest {
    let hello = profile.hello();
    let cells = profile.cells();
    let mut tables = Tables::new(profile);
    let unit = Unit::of(&cells, hello.interval_ns);
    let samples: Vec<OtlpSample> =
        cells.iter().map(|&(thread, stack, cell)| tables.sample(thread, stack, unit.value(cell))).collect();
    let sample_type = match unit {
        Unit::Intervals(_) => tables.value_type("samples", "count"),
        Unit::Nanoseconds => tables.value_type("cpu", "nanoseconds"),
    };
    let attribute_indices = tables.account(&cells);
    let otlp = OtlpProfile {
        sample_type: Some(sample_type),
        samples,
        time_unix_nano: start_ns,
        duration_nano: duration_ns,
        period_type: Some(tables.value_type("cpu", "nanoseconds")),
        period: hello.interval_ns as i64,
        profile_id: [hello.session_id.to_be_bytes(), start_ns.to_be_bytes()].concat(),
        attribute_indices,
        ..Default::default()
    };
    let scope = InstrumentationScope {
        name: "tickwalk".to_owned(),
        version: hello.agent_version.clone(),
        ..Default::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(resource(profile)),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: vec![otlp],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
        dictionary: Some(tables.into_dictionary()),
    }
}

/// Unit of the values of samples.
#[derive(Clone, Copy)]
enum Unit {
    /// Sampling intervals of this length, ns.
    Intervals(u64),
    Nanoseconds,
}

impl Unit {
    fn of(cells: &[(u32, u32, Cell)], interval_ns: u64) -> Self {
        let whole = |&(_, _, cell): &(u32, u32, Cell)| cell.cpu_ns.is_multiple_of(interval_ns);
        if interval_ns > 0 && cells.iter().all(whole) {
            Unit::Intervals(interval_ns)
        } else {
            Unit::Nanoseconds
        }
    }

    fn value(self, cell: Cell) -> i64 {
        match self {
            Unit::Intervals(interval_ns) => (cell.cpu_ns / interval_ns) as i64,
            Unit::Nanoseconds => cell.cpu_ns as i64,
        }
    }
}

/// Returns the profiled program as an OpenTelemetry resource.
fn resource(profile: &ProcessProfile) -> Resource {
    let hello = profile.hello();
    let attributes = [
        ("service.name", Value::StringValue(profile.session().service().to_owned())),
        ("host.name", Value::StringValue(hello.host.clone())),
        ("process.pid", Value::IntValue(i64::from(hello.pid))),
        ("process.runtime.name", Value::StringValue(hello.jvm_name.clone())),
        ("process.runtime.version", Value::StringValue(hello.jvm_version.clone())),
    ];
    let attributes = attributes
        .into_iter()
        .map(|(key, value)| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..Default::default()
        })
        .collect();
    Resource { attributes, ..Default::default() }
}

/// The dictionary under construction.
struct Tables<'p> {
    profile: &'p ProcessProfile,
    frames: Frames<'p>,
    strings: StringTable,
    attributes: Vec<KeyValueAndUnit>,
    by_thread: FxHashMap<u32, Vec<i32>>,
    stacks: Vec<Stack>,
    by_stack: FxHashMap<u32, i32>,
}

impl<'p> Tables<'p> {
    fn new(profile: &'p ProcessProfile) -> Self {
        Tables {
            profile,
            frames: Frames::new(profile),
            strings: StringTable::with_empty(),
            attributes: vec![KeyValueAndUnit::default()],
            by_thread: FxHashMap::default(),
            stacks: vec![Stack::default()],
            by_stack: FxHashMap::default(),
        }
    }

    fn sample(&mut self, thread: u32, stack: u32, value: i64) -> OtlpSample {
        OtlpSample {
            stack_index: self.stack(stack),
            attribute_indices: self.thread(thread),
            values: vec![value],
            ..Default::default()
        }
    }

    fn stack(&mut self, id: u32) -> i32 {
        if let Some(&index) = self.by_stack.get(&id) {
            return index;
        }
        let location_indices = self.frames.stack(id).into_iter().map(location_index).collect();
        let index = self.stacks.len() as i32;
        self.stacks.push(Stack { location_indices });
        self.by_stack.insert(id, index);
        index
    }

    fn thread(&mut self, id: u32) -> Vec<i32> {
        if let Some(indices) = self.by_thread.get(&id) {
            return indices.clone();
        }
        let known = self.profile.thread(id);
        let name = self.profile.thread_name(id).to_owned();
        let tid = known.map_or(0, |thread| i64::from(thread.tid));
        let mut indices = vec![
            self.attribute("thread.name", Value::StringValue(name)),
            self.attribute("thread.id", Value::IntValue(tid)),
        ];
        if let Some(thread) = known.filter(|thread| thread.kind() == ThreadKind::Virtual) {
            let carrier = self.profile.thread_name(thread.carrier);
            let (carrier, java_id) = (carrier.to_owned(), thread.java_id);
            indices.push(self.attribute("tickwalk.thread.carrier", Value::StringValue(carrier)));
            indices.push(self.attribute("tickwalk.thread.virtual_id", Value::IntValue(java_id)));
        }
        self.by_thread.insert(id, indices.clone());
        indices
    }

    /// Returns attributes with the account and the warnings, in Tickwalk's own namespace.
    fn account(&mut self, cells: &[(u32, u32, Cell)]) -> Vec<i32> {
        let samples = cells.iter().fold(0, |sum: u64, (_, _, cell)| sum.saturating_add(cell.samples));
        let summary = Summary::new(self.profile);
        let mut indices = vec![self.attribute("tickwalk.samples", Value::IntValue(samples as i64))];
        if summary.accounted {
            indices.push(self.attribute("tickwalk.explained", Value::DoubleValue(summary.explained)));
            let lost_ns = summary.cpu_ns.lost_ns() as i64;
            indices.push(self.attribute("tickwalk.lost_ns", Value::IntValue(lost_ns)));
        }
        indices
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.string(key);
        self.attributes.push(KeyValueAndUnit {
            key_strindex,
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex: 0,
        });
        (self.attributes.len() - 1) as i32
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.intern(text) as i32
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { type_strindex: self.string(kind), unit_strindex: self.string(unit) }
    }

    fn into_dictionary(mut self) -> ProfilesDictionary {
        let mut functions = vec![Function::default()];
        let mut by_function: FxHashMap<Function, i32> = FxHashMap::default();
        let mut locations = vec![Location::default()];
        let jvm = self.attribute("profile.frame.type", Value::StringValue("jvm".to_owned()));
        let native = self.attribute("profile.frame.type", Value::StringValue("native".to_owned()));
        let strings = &mut self.strings;
        for frame in self.frames.all() {
            let function = function(strings, frame);
            let function_index = *by_function.entry(function).or_insert_with(|| {
                functions.push(function);
                (functions.len() - 1) as i32
            });
            let attribute_indices = match frame.kind {
                // A marker is not code and has no type.
                FrameKind::Marker => Vec::new(),
                _ if frame.is_java() => vec![jvm],
                _ => vec![native],
            };
            let lines = vec![Line { function_index, line: i64::from(frame.line), column: 0 }];
            locations.push(Location { lines, attribute_indices, ..Default::default() });
        }
        ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: locations,
            function_table: functions,
            link_table: vec![Link::default()],
            string_table: self.strings.into_texts(),
            attribute_table: self.attributes,
            stack_table: self.stacks,
        }
    }
}

fn function(strings: &mut StringTable, frame: &FrameParts) -> Function {
    let mut string = |text: &str| strings.intern(text) as i32;
    let name_strindex = string(&frame.text);
    let system_name_strindex = string(&frame.system_name());
    Function { name_strindex, system_name_strindex, filename_strindex: string(&frame.file), start_line: 0 }
}

/// Location 0 is the empty one.
fn location_index(frame: u32) -> i32 {
    frame as i32 + 1
}
