//! Frames split into the parts of structured formats: class, method, file, line.
//!
//! The text of a frame is the same as in tables and flame graphs, so sums by name are equal in all of them.

use std::borrow::Cow;

use proto::v1::FrameKind;

use super::Dictionary;
use super::stop::UNKNOWN;
use crate::text::class_name::class_text;

/// A frame in parts. Unknown or inapplicable texts are empty, and numbers 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameParts {
    /// Text for display: `package.Class.method` or a symbol.
    pub text: String,
    /// Class in internal form, `package/Class`, without parts that differ between runs; empty for other than Java
    /// frames.
    pub class: String,
    /// Method of a Java frame, else the whole symbol.
    pub method: String,
    /// Descriptor of a Java method, as `(I)V`.
    pub signature: String,
    /// Source file with its package as a path, as `java/util/HashMap.java`.
    pub file: String,
    /// Line in `file`, from 1.
    pub line: u32,
    /// Byte code index, -1 if there is none.
    pub bci: i32,
    /// Kind of the code; kinds of later versions are [`FrameKind::Unspecified`].
    pub kind: FrameKind,
    /// JVM access flags of the method.
    pub modifiers: u32,
    /// True if Java hides the frame from programs.
    pub hidden: bool,
    /// Path of the library of native code.
    pub library: String,
    /// Build id of that library, in hexadecimal.
    pub build_id: String,
}

impl FrameParts {
    pub fn of(dictionary: &Dictionary, frame: u32) -> FrameParts {
        let row = dictionary.frame(frame);
        let kind = FrameKind::try_from(i32::from(row.kind)).unwrap_or(FrameKind::Unspecified);
        let text = dictionary.frame_text(frame).into_owned();
        if row.method == 0 {
            let library = dictionary.string(row.library);
            let (library, build_id) = library.rsplit_once(' ').unwrap_or((library, ""));
            let (library, build_id) = (library.to_owned(), build_id.to_owned());
            let method = text.clone();
            return FrameParts { method, bci: -1, kind, text, library, build_id, ..FrameParts::default() };
        }
        let method = dictionary.method(row.method);
        let optional = |string| Some(dictionary.string(string)).filter(|text| *text != UNKNOWN).unwrap_or("");
        let class = class_text(dictionary.string(method.class_name)).replace('.', "/");
        let file = match (class.rsplit_once('/'), optional(method.source_file)) {
            (_, "") => String::new(),
            (Some((package, _)), file) => format!("{package}/{file}"),
            (None, file) => file.to_owned(),
        };
        FrameParts {
            // A method with an unknown class is still a Java method.
            class: if class.is_empty() { UNKNOWN.to_owned() } else { class },
            method: dictionary.string(method.name).to_owned(),
            signature: optional(method.signature).to_owned(),
            file,
            line: row.line,
            bci: row.bci,
            kind,
            modifiers: method.modifiers,
            hidden: method.hidden,
            text,
            ..FrameParts::default()
        }
    }

    /// Returns class, method and descriptor of a Java method, else the symbol.
    pub fn system_name(&self) -> Cow<'_, str> {
        match self.is_java() {
            true => Cow::Owned(format!("{}.{}{}", self.class, self.method, self.signature)),
            false => Cow::Borrowed(&self.text),
        }
    }

    pub fn is_java(&self) -> bool {
        !self.class.is_empty()
    }
}

/// Returns a frame kind in one word, such as `c2` or `native_method`, derived from the protocol's name.
pub fn kind_text(kind: FrameKind) -> String {
    kind.as_str_name().trim_start_matches("FRAME_KIND_").to_lowercase()
}
