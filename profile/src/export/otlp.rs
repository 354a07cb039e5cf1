//! OTLP profiles: the request that OpenTelemetry's collectors and back ends accept, for files and for forwarding.
//!
//! Samples are summed by thread and stack, without times, because not all receivers accept the other forms. The
//! sample type is always `samples/count` with a period of `cpu/nanoseconds`, which receivers recognise as a CPU
//! profile; value times period is the exact CPU time. The period is the sampling interval, or a divisor of it if
//! values need one.
//!
//! Source: opentelemetry-proto 1.10 to 1.11, `profiles/v1development`; element 0 of every table is the empty one.

use std::collections::BTreeMap;
use std::hash::Hash;
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

use super::Profiles;
use super::frames::Frames;
use super::strings::StringTable;
use crate::dictionary::frame_parts::FrameParts;
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::query::summary::Summary;
use crate::source::Sum;

/// Writes `profile` to `out` as one request, unframed.
pub fn write(profile: &ProcessProfile, mut out: impl Write) -> io::Result<()> {
    let request = request(profile, profile.start_ns(), profile.duration_ns());
    out.write_all(&request.encode_to_vec())?;
    out.flush()
}

/// Writes several processes to `out` as one request with a resource for each.
pub fn write_each(profiles: Profiles<'_>, mut out: impl Write) -> Result<(), QueryError> {
    let profiles: Vec<ProcessProfile> = profiles.collect::<Result<_, _>>()?;
    let mut request = ExportProfilesServiceRequest::default();
    if let Some(first) = profiles.first() {
        let mut tables = Tables::new(first);
        for profile in &profiles {
            tables.turn_to(profile);
            request
                .resource_profiles
                .push(tables.resource_profiles(profile.start_ns(), profile.duration_ns()));
        }
        request.dictionary = Some(tables.into_dictionary());
    }
    out.write_all(&request.encode_to_vec())?;
    Ok(out.flush()?)
}

/// Returns the request with the samples of `profile`, taken within `duration_ns` from `start_ns`, ns since the epoch.
///
/// The profile's id is derived from the session and the start, so receivers can recognise a repeated request.
pub fn request(profile: &ProcessProfile, start_ns: u64, duration_ns: u64) -> ExportProfilesServiceRequest {
    let mut tables = Tables::new(profile);
    ExportProfilesServiceRequest {
        resource_profiles: vec![tables.resource_profiles(start_ns, duration_ns)],
        dictionary: Some(tables.into_dictionary()),
    }
}

/// Returns the CPU time, in nanoseconds, of which `interval_ns` and all values are multiples; at least 1.
fn period_ns(cells: &[(u32, u32, Sum)], interval_ns: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    cells.iter().fold(interval_ns, |unit, (_, _, cell)| divisor(cell.cpu_ns, unit)).max(1)
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
    /// By key and written value.
    by_value: FxHashMap<(&'static str, String), i32>,
    by_thread: FxHashMap<u32, Vec<i32>>,
    functions: Vec<Function>,
    by_function: FxHashMap<Function, i32>,
    mappings: Vec<Mapping>,
    by_mapping: FxHashMap<Mapping, i32>,
    locations: Vec<Location>,
    /// By mapping, function, line and attributes.
    by_location: FxHashMap<(i32, i32, u32, Vec<i32>), i32>,
    by_frame: FxHashMap<u32, i32>,
    stacks: Vec<Stack>,
    by_stack: FxHashMap<Stack, i32>,
}

impl<'p> Tables<'p> {
    fn new(profile: &'p ProcessProfile) -> Self {
        Tables {
            profile,
            frames: Frames::new(profile),
            strings: StringTable::with_empty(),
            attributes: vec![KeyValueAndUnit::default()],
            by_value: FxHashMap::default(),
            by_thread: FxHashMap::default(),
            functions: vec![Function::default()],
            by_function: FxHashMap::default(),
            mappings: vec![Mapping::default()],
            by_mapping: FxHashMap::from_iter([(Mapping::default(), 0)]),
            locations: vec![Location::default()],
            by_location: FxHashMap::default(),
            by_frame: FxHashMap::default(),
            stacks: vec![Stack::default()],
            by_stack: FxHashMap::from_iter([(Stack::default(), 0)]),
        }
    }

    /// Continues with another process; all share the tables of the dictionary.
    fn turn_to(&mut self, profile: &'p ProcessProfile) {
        self.profile = profile;
        self.frames = Frames::new(profile);
        self.by_thread.clear();
        self.by_frame.clear();
    }

    /// Returns the samples of the process, taken within `duration_ns` from `start_ns`.
    fn resource_profiles(&mut self, start_ns: u64, duration_ns: u64) -> ResourceProfiles {
        let hello = self.profile.hello();
        let cells = self.profile.cells();
        let period_ns = period_ns(&cells, hello.interval_ns);
        // Stacks that differ in what the format does not have, such as the kinds of frames, are one.
        let mut sums: BTreeMap<(u32, i32), u64> = BTreeMap::new();
        for &(thread, stack, cell) in &cells {
            let sum = sums.entry((thread, self.stack(stack))).or_default();
            *sum = sum.saturating_add(cell.cpu_ns);
        }
        let count = |cpu_ns: u64| i64::try_from(cpu_ns / period_ns).unwrap_or(i64::MAX);
        let samples = sums.into_iter().map(|((thread, stack_index), cpu_ns)| OtlpSample {
            stack_index,
            attribute_indices: self.thread(thread),
            values: vec![count(cpu_ns)],
            ..Default::default()
        });
        let samples = samples.collect();
        let attribute_indices = self.account(&cells);
        let otlp = OtlpProfile {
            sample_type: Some(self.value_type("samples", "count")),
            samples,
            time_unix_nano: start_ns,
            duration_nano: duration_ns,
            period_type: Some(self.value_type(self.profile.session().mode().sample_type(), "nanoseconds")),
            period: i64::try_from(period_ns).unwrap_or(i64::MAX),
            profile_id: [hello.session_id.to_be_bytes(), start_ns.to_be_bytes()].concat(),
            attribute_indices,
            ..Default::default()
        };
        let scope = InstrumentationScope {
            name: "tickwalk".to_owned(),
            version: hello.agent_version.clone(),
            ..Default::default()
        };
        ResourceProfiles {
            resource: Some(resource(self.profile)),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: vec![otlp],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }
    }

    fn stack(&mut self, id: u32) -> i32 {
        let frames = self.frames.stack(id);
        let location_indices = frames.into_iter().map(|frame| self.location(frame)).collect();
        intern(&mut self.stacks, &mut self.by_stack, Stack { location_indices })
    }

    fn location(&mut self, frame: u32) -> i32 {
        if let Some(&index) = self.by_frame.get(&frame) {
            return index;
        }
        let parts = self.frames.all()[frame as usize].clone();
        let function = function(&mut self.strings, &parts);
        let function_index = intern(&mut self.functions, &mut self.by_function, function);
        let attribute_indices = match parts.kind {
            // A marker is not code, so it has no type.
            FrameKind::Marker => Vec::new(),
            _ if parts.is_java() => vec![self.text("profile.frame.type", "jvm".to_owned())],
            _ => vec![self.text("profile.frame.type", "native".to_owned())],
        };
        let mapping_index = self.mapping(&parts);
        let key = (mapping_index, function_index, parts.line, attribute_indices.clone());
        let index = *self.by_location.entry(key).or_insert_with(|| {
            let lines = vec![Line { function_index, line: i64::from(parts.line), column: 0 }];
            self.locations.push(Location { mapping_index, lines, attribute_indices, ..Default::default() });
            (self.locations.len() - 1) as i32
        });
        self.by_frame.insert(frame, index);
        index
    }

    /// Returns the mapping of the library of native code, 0 for other frames.
    fn mapping(&mut self, parts: &FrameParts) -> i32 {
        if parts.library.is_empty() {
            return 0;
        }
        let filename_strindex = self.string(&parts.library);
        let attribute_indices = match parts.build_id.as_str() {
            "" => Vec::new(),
            id => vec![self.text("process.executable.build_id.gnu", id.to_owned())],
        };
        let mapping = Mapping { filename_strindex, attribute_indices, ..Default::default() };
        intern(&mut self.mappings, &mut self.by_mapping, mapping)
    }

    fn thread(&mut self, id: u32) -> Vec<i32> {
        if let Some(indices) = self.by_thread.get(&id) {
            return indices.clone();
        }
        let known = self.profile.thread(id);
        let name = self.profile.thread_name(id).to_owned();
        // Back ends drop attributes of samples that are not texts.
        let tid = known.map_or(0, |thread| thread.tid).to_string();
        let mut indices = vec![self.text("thread.name", name), self.text("thread.id", tid)];
        if let Some(thread) = known.filter(|thread| thread.kind() == ThreadKind::Virtual) {
            let carrier = self.profile.thread_name(thread.carrier);
            let (carrier, java_id) = (carrier.to_owned(), thread.java_id.to_string());
            indices.push(self.text("tickwalk.thread.carrier", carrier));
            indices.push(self.text("tickwalk.thread.virtual_id", java_id));
        }
        self.by_thread.insert(id, indices.clone());
        indices
    }

    /// Returns attributes with the account and the warnings, in Tickwalk's own namespace.
    fn account(&mut self, cells: &[(u32, u32, Sum)]) -> Vec<i32> {
        let samples = cells.iter().fold(0, |sum: u64, (_, _, cell)| sum.saturating_add(cell.samples));
        let summary = Summary::new(self.profile);
        let mode = self.text("tickwalk.mode", summary.mode.to_owned());
        let mut indices = vec![mode, self.attribute("tickwalk.samples", Value::IntValue(samples as i64))];
        if summary.accounted {
            indices.push(self.attribute("tickwalk.explained", Value::DoubleValue(summary.explained)));
            let cpu = &summary.cpu_ns;
            for (key, ns) in [
                ("tickwalk.kernel_ns", cpu.kernel),
                ("tickwalk.sampled_ns", cpu.sampled),
                ("tickwalk.lost_ns", cpu.lost_ns()),
                ("tickwalk.unfinished_ns", cpu.unfinished),
                ("tickwalk.before_timer_ns", cpu.before_timer),
                ("tickwalk.profiler_ns", cpu.profiler),
                ("tickwalk.outside_ns", cpu.outside),
            ] {
                let ns = i64::try_from(ns).unwrap_or(i64::MAX);
                indices.push(self.attribute(key, Value::IntValue(ns)));
            }
        }
        indices
    }

    fn text(&mut self, key: &'static str, text: String) -> i32 {
        self.attribute(key, Value::StringValue(text))
    }

    /// Returns the attribute with this value, which is in the table once.
    fn attribute(&mut self, key: &'static str, value: Value) -> i32 {
        let known = (key, format!("{value:?}"));
        if let Some(&index) = self.by_value.get(&known) {
            return index;
        }
        let key_strindex = self.string(key);
        self.attributes.push(KeyValueAndUnit {
            key_strindex,
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex: 0,
        });
        let index = (self.attributes.len() - 1) as i32;
        self.by_value.insert(known, index);
        index
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.intern(text) as i32
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { type_strindex: self.string(kind), unit_strindex: self.string(unit) }
    }

    fn into_dictionary(self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings,
            location_table: self.locations,
            function_table: self.functions,
            link_table: vec![Link::default()],
            string_table: self.strings.into_texts(),
            attribute_table: self.attributes,
            stack_table: self.stacks,
        }
    }
}

/// Returns the index of `element` in `table`, where it is once.
fn intern<T: Clone + Eq + Hash>(table: &mut Vec<T>, indices: &mut FxHashMap<T, i32>, element: T) -> i32 {
    *indices.entry(element).or_insert_with_key(|element| {
        table.push(element.clone());
        (table.len() - 1) as i32
    })
}

fn function(strings: &mut StringTable, frame: &FrameParts) -> Function {
    let mut string = |text: &str| strings.intern(text) as i32;
    let name_strindex = string(&frame.text);
    let system_name_strindex = string(&frame.system_name());
    Function { name_strindex, system_name_strindex, filename_strindex: string(&frame.file), start_line: 0 }
}
