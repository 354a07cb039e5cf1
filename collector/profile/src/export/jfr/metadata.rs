//! The type descriptions in a JFR chunk: events, structures of fields, annotations.
//!
//! Names, fields and annotations of `jdk.*` events are those of JDK 25, `src/hotspot/share/jfr/metadata/metadata.xml`;
//! readers find types by name, so the ids are arbitrary. Structures declare only fields that a recording can fill.

use rustc_hash::FxHashMap;

use super::encode::Bytes;

/// Id of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(missing_docs, reason = "named like the types")]
pub enum Id {
    // 0 and 1 are the metadata and the checkpoint event.
    Boolean = 20,
    Int,
    Long,
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

/// One type of the chunk.
struct Type {
    id: Id,
    name: &'static str,
    of: Kind,
    fields: &'static [Field],
}

enum Kind {
    /// A primitive type or structure.
    Plain,
    /// A structure that readers show as its only field.
    Simple,
    Annotation,
    Event {
        label: &'static str,
        category: &'static [&'static str],
        experimental: bool,
    },
}

struct Field {
    name: &'static str,
    class: Id,
    place: Place,
    /// Label that readers show.
    label: &'static str,
    unit: Unit,
}

enum Place {
    Inline,
    Pool,
    Array,
}

enum Unit {
    None,
    /// Instant in ticks of the chunk.
    Instant,
    /// Duration in ticks of the chunk.
    Ticks,
    EpochMillis,
    Millis,
}

const fn field(name: &'static str, class: Id, label: &'static str) -> Field {
    Field { name, class, place: Place::Inline, label, unit: Unit::None }
}

const fn pooled(name: &'static str, class: Id, label: &'static str) -> Field {
    Field { name, class, place: Place::Pool, label, unit: Unit::None }
}

const fn time(name: &'static str, label: &'static str, unit: Unit) -> Field {
    Field { name, class: Id::Long, place: Place::Inline, label, unit }
}

const START: Field = time("startTime", "Start Time", Unit::Instant);
const VALUE: &[Field] = &[field("value", Id::String, "")];
const PROFILING: &[&str] = &["Java Virtual Machine", "Profiling"];

const fn plain(id: Id, name: &'static str, fields: &'static [Field]) -> Type {
    Type { id, name, of: Kind::Plain, fields }
}

const fn simple(id: Id, name: &'static str, fields: &'static [Field]) -> Type {
    Type { id, name, of: Kind::Simple, fields }
}

const fn annotation(id: Id, name: &'static str, fields: &'static [Field]) -> Type {
    Type { id, name, of: Kind::Annotation, fields }
}

const fn event(
    id: Id,
    name: &'static str,
    label: &'static str,
    category: &'static [&'static str],
    fields: &'static [Field],
) -> Type {
    Type { id, name, of: Kind::Event { label, category, experimental: false }, fields }
}

const TYPES: &[Type] = &[
    plain(Id::Boolean, "boolean", &[]),
    plain(Id::Int, "int", &[]),
    plain(Id::Long, "long", &[]),
    plain(Id::String, "java.lang.String", &[]),
    plain(
        Id::Class,
        "java.lang.Class",
        &[
            pooled("classLoader", Id::ClassLoader, "Class Loader"),
            pooled("name", Id::Symbol, "Name"),
            pooled("package", Id::Package, "Package"),
            field("modifiers", Id::Int, "Access Modifiers"),
            field("hidden", Id::Boolean, "Hidden"),
        ],
    ),
    plain(
        Id::Thread,
        "java.lang.Thread",
        &[
            field("osName", Id::String, "OS Thread Name"),
            field("osThreadId", Id::Long, "OS Thread Id"),
            field("javaName", Id::String, "Java Thread Name"),
            field("javaThreadId", Id::Long, "Java Thread Id"),
            field("virtual", Id::Boolean, "Virtual Thread"),
        ],
    ),
    plain(Id::ClassLoader, "jdk.types.ClassLoader", &[pooled("name", Id::Symbol, "Name")]),
    plain(Id::Package, "jdk.types.Package", &[pooled("name", Id::Symbol, "Name")]),
    simple(Id::Symbol, "jdk.types.Symbol", &[field("string", Id::String, "String")]),
    plain(
        Id::Method,
        "jdk.types.Method",
        &[
            pooled("type", Id::Class, "Type"),
            pooled("name", Id::Symbol, "Name"),
            pooled("descriptor", Id::Symbol, "Descriptor"),
            field("modifiers", Id::Int, "Access Modifiers"),
            field("hidden", Id::Boolean, "Hidden"),
        ],
    ),
    simple(Id::FrameType, "jdk.types.FrameType", &[field("description", Id::String, "Description")]),
    plain(
        Id::StackFrame,
        "jdk.types.StackFrame",
        &[
            pooled("method", Id::Method, "Java Method"),
            field("lineNumber", Id::Int, "Line Number"),
            field("bytecodeIndex", Id::Int, "Bytecode Index"),
            pooled("type", Id::FrameType, "Frame Type"),
        ],
    ),
    plain(
        Id::StackTrace,
        "jdk.types.StackTrace",
        &[
            field("truncated", Id::Boolean, "Truncated"),
            Field {
                name: "frames",
                class: Id::StackFrame,
                place: Place::Array,
                label: "Stack Frames",
                unit: Unit::None,
            },
        ],
    ),
    simple(Id::ThreadState, "jdk.types.ThreadState", &[field("name", Id::String, "Name")]),
    annotation(Id::Label, "jdk.jfr.Label", VALUE),
    annotation(
        Id::Category,
        "jdk.jfr.Category",
        &[Field { name: "value", class: Id::String, place: Place::Array, label: "", unit: Unit::None }],
    ),
    annotation(Id::Timestamp, "jdk.jfr.Timestamp", VALUE),
    annotation(Id::Timespan, "jdk.jfr.Timespan", VALUE),
    annotation(Id::Experimental, "jdk.jfr.Experimental", &[]),
    Type {
        id: Id::CpuTimeSample,
        name: "jdk.CPUTimeSample",
        of: Kind::Event { label: "CPU Time Sample", category: PROFILING, experimental: true },
        fields: &[
            START,
            pooled("stackTrace", Id::StackTrace, "Stack Trace"),
            pooled("eventThread", Id::Thread, "Thread"),
            field("failed", Id::Boolean, "Failed"),
            time("samplingPeriod", "CPU Time Sampling Period", Unit::Ticks),
            field("biased", Id::Boolean, "Biased"),
        ],
    },
    Type {
        id: Id::CpuTimeSamplesLost,
        name: "jdk.CPUTimeSamplesLost",
        of: Kind::Event { label: "CPU Time Samples Lost", category: PROFILING, experimental: true },
        fields: &[
            START,
            field("lostSamples", Id::Int, "Lost Samples"),
            pooled("eventThread", Id::Thread, "Thread"),
        ],
    },
    event(
        Id::ExecutionSample,
        "jdk.ExecutionSample",
        "Java Execution Sample",
        PROFILING,
        &[
            START,
            pooled("sampledThread", Id::Thread, "Thread"),
            pooled("stackTrace", Id::StackTrace, "Stack Trace"),
            pooled("state", Id::ThreadState, "Thread State"),
        ],
    ),
    event(
        Id::ActiveRecording,
        "jdk.ActiveRecording",
        "Flight Recording",
        &["Flight Recorder"],
        &[
            START,
            field("id", Id::Long, "Id"),
            field("name", Id::String, "Name"),
            time("recordingStart", "Start Time", Unit::EpochMillis),
            time("recordingDuration", "Recording Duration", Unit::Millis),
        ],
    ),
    event(
        Id::JvmInformation,
        "jdk.JVMInformation",
        "JVM Information",
        &["Java Virtual Machine"],
        &[
            START,
            field("jvmName", Id::String, "JVM Name"),
            field("jvmVersion", Id::String, "JVM Version"),
            field("javaArguments", Id::String, "Java Application Arguments"),
            field("pid", Id::Long, "Process Identifier"),
        ],
    ),
    event(
        Id::OsInformation,
        "jdk.OSInformation",
        "OS Information",
        &["Operating System"],
        &[START, field("osVersion", Id::String, "OS Version")],
    ),
    event(
        Id::Account,
        "tickwalk.Account",
        "Account of CPU Time",
        PROFILING,
        &[START, field("text", Id::String, "Text")],
    ),
];

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

    fn write(&self, strings: &mut Strings, out: &mut Bytes) {
        out.number(strings.intern(self.name));
        out.number(self.attributes.len() as u64);
        for (key, value) in &self.attributes {
            out.number(strings.intern(key));
            out.number(strings.intern(value));
        }
        out.number(self.children.len() as u64);
        self.children.iter().for_each(|child| child.write(strings, out));
    }
}

#[derive(Default)]
struct Strings {
    texts: Vec<String>,
    by_text: FxHashMap<String, u64>,
}

impl Strings {
    fn intern(&mut self, text: &str) -> u64 {
        if let Some(&position) = self.by_text.get(text) {
            return position;
        }
        let position = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), position);
        position
    }
}

/// Fields of the metadata event of a chunk that begins at `start_ticks`.
pub fn metadata(start_ticks: u64) -> Bytes {
    let types = Element::new("metadata").children(TYPES.iter().map(type_element));
    let region = Element::new("region").with("locale", "en_US").with("gmtOffset", 0);
    let mut strings = Strings::default();
    let mut tree = Bytes::default();
    Element::new("root").children([types, region]).write(&mut strings, &mut tree);
    let mut out = Bytes::default();
    out.number(start_ticks);
    out.number(0); // duration
    out.number(1); // the types are the same in every chunk
    out.number(strings.texts.len() as u64);
    strings.texts.iter().for_each(|text| out.string(Some(text)));
    out.append(&tree);
    out
}

fn type_element(of: &Type) -> Element {
    let class = Element::new("class").with("name", of.name).with("id", of.id as u64);
    let class = match &of.of {
        Kind::Plain => class,
        Kind::Simple => class.with("simpleType", true),
        Kind::Annotation => class.with("superType", "java.lang.annotation.Annotation"),
        Kind::Event { label, category, experimental } => {
            let category = (0..).zip(*category).fold(annotated(Id::Category), |element, (position, name)| {
                element.with(&format!("value-{position}"), name)
            });
            class
                .with("superType", "jdk.jfr.Event")
                .children([annotated(Id::Label).with("value", label), category])
                .children(experimental.then(|| annotated(Id::Experimental)))
        }
    };
    class.children(of.fields.iter().map(field_element))
}

fn field_element(field: &Field) -> Element {
    let element = Element::new("field").with("name", field.name).with("class", field.class as u64);
    let element = match field.place {
        Place::Inline => element,
        Place::Pool => element.with("constantPool", true),
        Place::Array => element.with("dimension", 1),
    };
    let unit = match field.unit {
        Unit::None => None,
        Unit::Instant => Some((Id::Timestamp, "TICKS")),
        Unit::Ticks => Some((Id::Timespan, "TICKS")),
        Unit::EpochMillis => Some((Id::Timestamp, "MILLISECONDS_SINCE_EPOCH")),
        Unit::Millis => Some((Id::Timespan, "MILLISECONDS")),
    };
    let label = (!field.label.is_empty()).then(|| annotated(Id::Label).with("value", field.label));
    element.children(label).children(unit.map(|(class, unit)| annotated(class).with("value", unit)))
}

fn annotated(class: Id) -> Element {
    Element::new("annotation").with("class", class as u64)
}
