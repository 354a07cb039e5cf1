//! Frames in the parts that structured formats ask for: class, method, file, line.
//!
//! Each distinct frame of the stacks asked for has a number, in order of first use. The text of a frame is the one
//! that tables and flame graphs show, so that sums by name agree between all of them.

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;

use crate::{NameId, Naming, Profile, WHOLE_STACKS, class_text};

/// A frame in parts; texts are empty and numbers 0 where nothing is known or nothing applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameParts {
    /// What is shown: `package.Class.method` or a symbol.
    pub name: NameId,
    /// Class in internal form, `package/Class`, without what differs between runs; empty if it is no Java frame.
    pub class: String,
    /// Method, or the whole symbol if it is no Java frame.
    pub method: String,
    /// Descriptor of a Java method, as `(I)V`.
    pub signature: String,
    /// Source file with its package as a path, as `java/util/HashMap.java`.
    pub file: String,
    /// Line in `file`, from 1.
    pub line: u32,
    /// Byte code index, -1 if there is none.
    pub bci: i32,
    /// How the code ran; a kind of a later version is [`FrameKind::Unspecified`].
    pub kind: FrameKind,
    /// JVM access flags of the method.
    pub modifiers: u32,
    /// Whether Java hides the frame from programs.
    pub hidden: bool,
}

impl FrameParts {
    /// Whether the frame is a Java method's.
    pub fn is_java(&self) -> bool {
        !self.class.is_empty()
    }
}

/// The distinct frames of the stacks asked for so far.
#[derive(Debug)]
pub struct Frames<'p> {
    profile: &'p Profile,
    naming: Naming<'p>,
    parts: Vec<FrameParts>,
    by_id: FxHashMap<u64, u32>,
    by_marker: FxHashMap<NameId, u32>,
}

impl<'p> Frames<'p> {
    /// No frames yet, for stacks of `profile`.
    pub fn new(profile: &'p Profile) -> Self {
        Frames {
            profile,
            naming: Naming::new(profile),
            parts: Vec::new(),
            by_id: FxHashMap::default(),
            by_marker: FxHashMap::default(),
        }
    }

    /// Numbers of the frames of a stack, leaf first; a walk that was cut has a frame `[reason]` at its root.
    pub fn stack(&mut self, id: u64) -> Vec<u32> {
        let named = self.naming.rooted_stack(id);
        let frames: &[u64] = self.profile.stack(id).map_or(&[], |stack| &stack.frames);
        // What is longer than the stack's own frames are markers, at the root.
        let with_ids = named.into_iter().rev().enumerate();
        with_ids
            .map(|(depth, named)| match frames.get(depth) {
                Some(&frame) => self.defined(frame, named.name),
                None => self.marker(named.name),
            })
            .collect()
    }

    /// All frames met so far, by number.
    pub fn all(&self) -> &[FrameParts] {
        &self.parts
    }

    /// What is shown for a frame.
    pub fn text(&self, frame: u32) -> &str {
        self.naming.text(self.parts[frame as usize].name)
    }

    /// The text of a name.
    pub fn name(&self, name: NameId) -> &str {
        self.naming.text(name)
    }

    /// Whether the walk of this stack was cut, so that callers are missing.
    pub fn is_cut(&self, stack: u64) -> bool {
        !WHOLE_STACKS.contains(&self.profile.stop_of(stack))
    }

    fn defined(&mut self, id: u64, name: NameId) -> u32 {
        if let Some(&number) = self.by_id.get(&id) {
            return number;
        }
        let parts = self.parts_of(id, name);
        let number = self.push(parts);
        self.by_id.insert(id, number);
        number
    }

    fn marker(&mut self, name: NameId) -> u32 {
        if let Some(&number) = self.by_marker.get(&name) {
            return number;
        }
        let number = self.push(self.symbol(name, FrameKind::Marker));
        self.by_marker.insert(name, number);
        number
    }

    fn push(&mut self, parts: FrameParts) -> u32 {
        self.parts.push(parts);
        (self.parts.len() - 1) as u32
    }

    fn symbol(&self, name: NameId, kind: FrameKind) -> FrameParts {
        FrameParts {
            name,
            class: String::new(),
            method: self.naming.text(name).to_owned(),
            signature: String::new(),
            file: String::new(),
            line: 0,
            bci: -1,
            kind,
            modifiers: 0,
            hidden: false,
        }
    }

    fn parts_of(&self, id: u64, name: NameId) -> FrameParts {
        let profile = self.profile;
        let Some(frame) = profile.frame(id) else {
            return self.symbol(name, FrameKind::Marker);
        };
        let kind = FrameKind::try_from(frame.kind).unwrap_or(FrameKind::Unspecified);
        let Some(method) = profile.method(frame.method) else {
            return self.symbol(name, kind);
        };
        let text = |id| profile.string(id).unwrap_or_default();
        // The text shown is class and method joined by a dot; methods have none, symbols of methods neither.
        let class = class_text(text(method.class_name)).replace('.', "/");
        let (_, method_name) = self.naming.text(name).rsplit_once('.').unwrap_or_default();
        let file = match (class.rsplit_once('/'), text(method.source_file)) {
            (_, "") => String::new(),
            (Some((package, _)), file) => format!("{package}/{file}"),
            (None, file) => file.to_owned(),
        };
        FrameParts {
            name,
            // A method without a known class is a Java method nevertheless.
            class: if class.is_empty() { crate::UNKNOWN.to_owned() } else { class },
            method: method_name.to_owned(),
            signature: text(method.signature).to_owned(),
            file,
            line: frame.line,
            bci: frame.bci,
            kind,
            modifiers: method.modifiers,
            hidden: method.hidden,
        }
    }
}

/// A frame kind in one word, as `c2` or `native_method`; a kind added later has its own word at once.
pub fn kind_text(kind: FrameKind) -> String {
    kind.as_str_name().trim_start_matches("FRAME_KIND_").to_lowercase()
}
