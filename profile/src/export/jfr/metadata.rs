//! The type descriptions in a JFR chunk: events, structures of fields, annotations.
//!
//! Names, fields and annotations of `jdk.*` events are those of JDK 25, `src/hotspot/share/jfr/metadata/metadata.xml`;
//! readers find types by name, so the ids are arbitrary. Structures declare only fields that a recording can fill.

use super::encode::Bytes;
use crate::export::strings::StringTable;

/// Id of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Id {
    // 0 and 1 are the metadata and the checkpoint event.
    Boolean = 20,
    Int,
    Long,
    Short,
    Float,
    String,
    Class,
    Thread,
    ClassLoader,
    Package,
    Symbol,
    Method,
    FrameType,
    StackFrame,
    StackTrace,
    ThreadState,
    Label,
    Category,
    Timestamp,
    Timespan,
    Experimental,
    CpuTimeSample,
    CpuTimeSamplesLost,
    ExecutionSample,
    ActiveRecording,
    JvmInformation,
    OsInformation,
    Account,
}

/// The types. The first line of a text has the name, then nothing for a plain type, `simple` for a structure that
/// readers show as its only field, `annotation`, or `event` with its label and categories. Each other line is a
/// field: name, type and label; in front of the type stands `pool` for a reference to the constant pool, `array`, or
/// the unit of a time. Each event also has its start time as first field.
const TYPES: &[(Id, &str)] = &[
    (Id::Boolean, "boolean"),
    (Id::Int, "int"),
    (Id::Long, "long"),
    // No event has such fields, but Pyroscope's reader requires these types.
    (Id::Short, "short"),
    (Id::Float, "float"),
    (Id::String, "java.lang.String"),
    (
        Id::Class,
        "java.lang.Class
        classLoader: pool jdk.types.ClassLoader, Class Loader
        name: pool jdk.types.Symbol, Name
        package: pool jdk.types.Package, Package
        modifiers: int, Access Modifiers
        hidden: boolean, Hidden",
    ),
    (
        Id::Thread,
        "java.lang.Thread
        osName: java.lang.String, OS Thread Name
        osThreadId: long, OS Thread Id
        javaName: java.lang.String, Java Thread Name
        javaThreadId: long, Java Thread Id
        virtual: boolean, Virtual Thread",
    ),
    (Id::ClassLoader, "jdk.types.ClassLoader\nname: pool jdk.types.Symbol, Name"),
    (Id::Package, "jdk.types.Package\nname: pool jdk.types.Symbol, Name"),
    (Id::Symbol, "jdk.types.Symbol simple\nstring: java.lang.String, String"),
    (
        Id::Method,
        "jdk.types.Method
        type: pool java.lang.Class, Type
        name: pool jdk.types.Symbol, Name
        descriptor: pool jdk.types.Symbol, Descriptor
        modifiers: int, Access Modifiers
        hidden: boolean, Hidden",
    ),
    (Id::FrameType, "jdk.types.FrameType simple\ndescription: java.lang.String, Description"),
    (
        Id::StackFrame,
        "jdk.types.StackFrame
        method: pool jdk.types.Method, Java Method
        lineNumber: int, Line Number
        bytecodeIndex: int, Bytecode Index
        type: pool jdk.types.FrameType, Frame Type",
    ),
    (
        Id::StackTrace,
        "jdk.types.StackTrace
        truncated: boolean, Truncated
        frames: array jdk.types.StackFrame, Stack Frames",
    ),
    (Id::ThreadState, "jdk.types.ThreadState simple\nname: java.lang.String, Name"),
    (Id::Label, "jdk.jfr.Label annotation\nvalue: java.lang.String"),
    (Id::Category, "jdk.jfr.Category annotation\nvalue: array java.lang.String"),
    (Id::Timestamp, "jdk.jfr.Timestamp annotation\nvalue: java.lang.String"),
    (Id::Timespan, "jdk.jfr.Timespan annotation\nvalue: java.lang.String"),
    (Id::Experimental, "jdk.jfr.Experimental annotation"),
    (
        Id::CpuTimeSample,
        "jdk.CPUTimeSample event CPU Time Sample; Java Virtual Machine; Profiling; experimental
        stackTrace: pool jdk.types.StackTrace, Stack Trace
        eventThread: pool java.lang.Thread, Thread
        failed: boolean, Failed
        samplingPeriod: ticks long, CPU Time Sampling Period
        biased: boolean, Biased",
    ),
    (
        Id::CpuTimeSamplesLost,
        "jdk.CPUTimeSamplesLost event CPU Time Samples Lost; Java Virtual Machine; Profiling; experimental
        lostSamples: int, Lost Samples
        eventThread: pool java.lang.Thread, Thread",
    ),
    (
        Id::ExecutionSample,
        "jdk.ExecutionSample event Java Execution Sample; Java Virtual Machine; Profiling
        sampledThread: pool java.lang.Thread, Thread
        stackTrace: pool jdk.types.StackTrace, Stack Trace
        state: pool jdk.types.ThreadState, Thread State",
    ),
    (
        Id::ActiveRecording,
        "jdk.ActiveRecording event Flight Recording; Flight Recorder
        id: long, Id
        name: java.lang.String, Name
        recordingStart: epoch_ms long, Start Time
        recordingDuration: ms long, Recording Duration",
    ),
    (
        Id::JvmInformation,
        "jdk.JVMInformation event JVM Information; Java Virtual Machine
        jvmName: java.lang.String, JVM Name
        jvmVersion: java.lang.String, JVM Version
        javaArguments: java.lang.String, Java Application Arguments
        pid: long, Process Identifier",
    ),
    (
        Id::OsInformation,
        "jdk.OSInformation event OS Information; Operating System
        osVersion: java.lang.String, OS Version",
    ),
    (
        Id::Account,
        "tickwalk.Account event Account of CPU Time; Java Virtual Machine; Profiling
        text: java.lang.String, Text",
    ),
];

/// Start time of an event, in ticks of the chunk.
const START: &str = "startTime: instant long, Start Time";

/// An element of the tree that describes types: attributes by name, then children.
#[derive(Default)]
struct Element {
    name: &'static str,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn new(name: &'static str) -> Self {
        Element { name, ..Default::default() }
    }

    fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.attributes.push((key.to_owned(), value.to_string()));
        self
    }

    fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    fn write(&self, strings: &mut StringTable, out: &mut Bytes) {
        out.number(strings.intern(self.name) as u64);
        out.number(self.attributes.len() as u64);
        for (key, value) in &self.attributes {
            out.number(strings.intern(key) as u64);
            out.number(strings.intern(value) as u64);
        }
        out.number(self.children.len() as u64);
        self.children.iter().for_each(|child| child.write(strings, out));
    }
}

/// Returns the fields of the metadata event of a chunk that begins at `start_ticks`.
pub fn metadata(start_ticks: u64) -> Bytes {
    let types = Element::new("metadata").children(TYPES.iter().map(|&(id, text)| type_element(id, text)));
    let region = Element::new("region").with("locale", "en_US").with("gmtOffset", 0);
    let mut strings = StringTable::default();
    let mut tree = Bytes::default();
    Element::new("root").children([types, region]).write(&mut strings, &mut tree);
    let mut out = Bytes::default();
    out.number(start_ticks);
    out.number(0); // duration
    out.number(1); // the types are the same in every chunk
    let texts = strings.into_texts();
    out.number(texts.len() as u64);
    texts.iter().for_each(|text| out.string(Some(text)));
    out.append(&tree);
    out
}

fn type_element(id: Id, text: &str) -> Element {
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let (name, kind) = first.split_once(' ').unwrap_or((first, ""));
    let class = Element::new("class").with("name", name).with("id", id as u64);
    let class = match kind {
        "" => class,
        "simple" => class.with("simpleType", true),
        "annotation" => class.with("superType", "java.lang.annotation.Annotation"),
        event => {
            let mut parts = event.trim_start_matches("event ").split("; ");
            let label = annotated(Id::Label).with("value", parts.next().unwrap_or_default());
            let (experimental, category): (Vec<_>, Vec<_>) = parts.partition(|part| *part == "experimental");
            let category = (0..).zip(category).fold(annotated(Id::Category), |element, (position, name)| {
                element.with(&format!("value-{position}"), name)
            });
            let experimental = experimental.iter().map(|_| annotated(Id::Experimental));
            let class = class.with("superType", "jdk.jfr.Event").children([label, category]);
            class.children(experimental).children([field_element(START)])
        }
    };
    class.children(lines.map(field_element))
}

fn field_element(line: &str) -> Element {
    let (name, rest) = line.split_once(": ").unwrap_or((line, ""));
    let (class, label) = rest.split_once(", ").unwrap_or((rest, ""));
    let (property, class) = class.rsplit_once(' ').unwrap_or(("", class));
    let is_class = |(_, text): &&(Id, &str)| text.split([' ', '\n']).next() == Some(class);
    let id = TYPES.iter().find(is_class).map_or(0, |&(id, _)| id as u64);
    let element = Element::new("field").with("name", name).with("class", id);
    let (element, unit) = match property {
        "pool" => (element.with("constantPool", true), None),
        "array" => (element.with("dimension", 1), None),
        "instant" => (element, Some((Id::Timestamp, "TICKS"))),
        "ticks" => (element, Some((Id::Timespan, "TICKS"))),
        "epoch_ms" => (element, Some((Id::Timestamp, "MILLISECONDS_SINCE_EPOCH"))),
        "ms" => (element, Some((Id::Timespan, "MILLISECONDS"))),
        _ => (element, None),
    };
    let label = (!label.is_empty()).then(|| annotated(Id::Label).with("value", label));
    element.children(label).children(unit.map(|(class, unit)| annotated(class).with("value", unit)))
}

fn annotated(class: Id) -> Element {
    Element::new("annotation").with("class", class as u64)
}
