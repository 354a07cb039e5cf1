//! Names of the frames of a tree: methods, lines, classes or packages. Frames with one name are summed.

use std::borrow::Cow;

use crate::dictionary::Dictionary;
use crate::text::class_name::class_text;
use crate::text::generated_name::folded;

/// Name of the package of classes without one.
const NO_PACKAGE: &str = "(default package)";

/// Unit that gives a frame its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    #[default]
    Method,
    Line,
    /// The class; of other code the library.
    Class,
    /// The package; of other code the library.
    Package,
    /// The method, without the numbers and hashes of generated classes, so that two runs can be compared.
    Folded,
}

impl Naming {
    /// Every naming with its name.
    pub const ALL: [(&str, Self); 5] = [
        ("method", Self::Method),
        ("line", Self::Line),
        ("class", Self::Class),
        ("package", Self::Package),
        ("folded", Self::Folded),
    ];

    /// Returns the word for several rows of this kind.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Method | Self::Folded => "methods",
            Self::Line => "lines",
            Self::Class => "classes",
            Self::Package => "packages",
        }
    }

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, naming)| *naming == self).map_or("", |(name, _)| name)
    }

    pub(in crate::query) fn text(self, dictionary: &Dictionary, frame: u32) -> Cow<'_, str> {
        let row = dictionary.frame(frame);
        match self {
            Self::Method => dictionary.frame_text(frame),
            Self::Folded => match dictionary.frame_text(frame) {
                Cow::Borrowed(text) => folded(text),
                Cow::Owned(text) => Cow::Owned(folded(&text).into_owned()),
            },
            Self::Line if row.line > 0 => {
                Cow::Owned(format!("{}:{}", dictionary.frame_text(frame), row.line))
            }
            Self::Line => dictionary.frame_text(frame),
            Self::Class | Self::Package if row.method == 0 => {
                // The library's path, a space, and its build id.
                let library = dictionary.string(row.library);
                let path = library.rsplit_once(' ').map_or(library, |(path, _)| path);
                match path.rsplit('/').next() {
                    Some(file) if row.library != 0 && !file.is_empty() => Cow::Owned(file.to_owned()),
                    _ => dictionary.frame_text(frame),
                }
            }
            Self::Class | Self::Package => {
                let class = class_text(dictionary.string(dictionary.method(row.method).class_name));
                match class.rsplit_once('.') {
                    _ if self == Self::Class => Cow::Owned(class.to_string()),
                    Some((package, _)) => Cow::Owned(package.to_owned()),
                    None => Cow::Borrowed(NO_PACKAGE),
                }
            }
        }
    }
}
