//! Frames as text.
//!
//! Frames are shown as `package.Class.method`, the same for every way the method ran. Names that the VM makes
//! up per class loading (the address suffix of hidden classes, the number of a lambda class) are shortened, for
//! they differ between runs and split what belongs together.

use std::borrow::Cow;

use proto::v1::FrameKind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Profile, UNKNOWN, WHOLE_STACKS};

/// Number of a text in a [`Naming`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A frame as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamedFrame {
    /// The text.
    pub name: NameId,
    /// How the code ran.
    pub kind: FrameKind,
}

/// Turns the frame ids of one profile into texts, each text once.
#[derive(Debug)]
pub struct Naming<'p> {
    profile: &'p Profile,
    names: Vec<String>,
    by_name: FxHashMap<String, NameId>,
    by_frame: FxHashMap<u64, NamedFrame>,
    unknown: FxHashSet<u64>,
}

impl<'p> Naming<'p> {
    /// No texts yet, for the frames of `profile`.
    pub fn new(profile: &'p Profile) -> Self {
        Naming {
            profile,
            names: Vec::new(),
            by_name: FxHashMap::default(),
            by_frame: FxHashMap::default(),
            unknown: FxHashSet::default(),
        }
    }

    /// The text of `name`.
    pub fn text(&self, name: NameId) -> &str {
        &self.names[name.0 as usize]
    }

    /// All texts; [`NameId`]s are positions in it.
    pub fn texts(&self) -> &[String] {
        &self.names
    }

    /// Distinct ids without an entry met so far.
    pub fn unknown_ids(&self) -> usize {
        self.unknown.len()
    }

    /// The number of `text`, a new one if it is new.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&name) = self.by_name.get(text) {
            return name;
        }
        let name = NameId(self.names.len() as u32);
        self.names.push(text.to_owned());
        self.by_name.insert(text.to_owned(), name);
        name
    }

    /// Frames of a stack, leaf first.
    ///
    /// A stack that was never defined is one [`UNKNOWN`] frame, one without frames its reason in brackets, so that
    /// every sample has a leaf.
    pub fn stack(&mut self, id: u64) -> Vec<NamedFrame> {
        let profile = self.profile;
        match profile.stack(id) {
            None => {
                self.unknown.insert(id);
                vec![self.marker(UNKNOWN)]
            }
            Some(stack) if stack.frames.is_empty() => vec![self.stop_marker(profile.stop_of(id))],
            Some(stack) => stack.frames.iter().map(|&frame| self.frame(frame)).collect(),
        }
    }

    /// Frames of a stack, root first, below a frame `[reason]` if the walk did not reach the end of the stack.
    pub fn rooted_stack(&mut self, id: u64) -> Vec<NamedFrame> {
        let mut frames = self.stack(id);
        let profile = self.profile;
        let stop = profile.stop_of(id);
        let is_empty = profile.stack(id).is_none_or(|stack| stack.frames.is_empty());
        if !WHOLE_STACKS.contains(&stop) && !is_empty {
            frames.push(self.stop_marker(stop));
        }
        frames.reverse();
        frames
    }

    fn stop_marker(&mut self, stop: &str) -> NamedFrame {
        self.marker(&format!("[{stop}]"))
    }

    fn marker(&mut self, text: &str) -> NamedFrame {
        NamedFrame { name: self.intern(text), kind: FrameKind::Marker }
    }

    /// The frame with this id; [`UNKNOWN`] if it was never defined.
    pub fn frame(&mut self, id: u64) -> NamedFrame {
        if let Some(&frame) = self.by_frame.get(&id) {
            return frame;
        }
        let profile = self.profile;
        let named = match profile.frames.get(&id) {
            None => {
                self.unknown.insert(id);
                self.marker(UNKNOWN)
            }
            Some(frame) => {
                let kind = FrameKind::try_from(frame.kind).unwrap_or(FrameKind::Unspecified);
                let text = if frame.method != 0 {
                    self.method(frame.method)
                } else {
                    self.string(frame.symbol).unwrap_or(UNKNOWN).to_owned()
                };
                NamedFrame { name: self.intern(&text), kind }
            }
        };
        self.by_frame.insert(id, named);
        named
    }

    fn method(&mut self, id: u64) -> String {
        let profile = self.profile;
        let Some(method) = profile.methods.get(&id) else {
            self.unknown.insert(id);
            return UNKNOWN.to_owned();
        };
        let class = self.string(method.class_name).map_or(Cow::Borrowed(UNKNOWN), class_text);
        let name = self.string(method.name).unwrap_or(UNKNOWN);
        format!("{class}.{name}")
    }

    fn string(&mut self, id: u64) -> Option<&'p str> {
        let profile = self.profile;
        let text = profile.strings.get(&id);
        if text.is_none() {
            self.unknown.insert(id);
        }
        text.map(|text| &**text)
    }
}

/// A class name of the VM as Java writes it: with dots, without the parts that differ between runs.
///
/// `com/example/App$$Lambda$14/0x000000080011a040` and `com/example/App$$Lambda+0x000071a2c4001400` both become
/// `com.example.App$$Lambda`.
pub fn class_text(internal: &str) -> Cow<'_, str> {
    let mut name = internal;
    if let Some((head, suffix)) = name.rsplit_once(['+', '/']) {
        let is_address =
            suffix.strip_prefix("0x").is_some_and(|hex| is_all(hex, |digit| digit.is_ascii_hexdigit()));
        // JDK 11 numbers hidden classes in decimal.
        if is_address || is_all(suffix, |digit| digit.is_ascii_digit()) {
            name = head;
        }
    }
    const LAMBDA: &str = "$$Lambda";
    if let Some((head, number)) = name.rsplit_once('$')
        && head.ends_with(LAMBDA)
        && is_all(number, |digit| digit.is_ascii_digit())
    {
        name = head;
    }
    if name.contains('/') { Cow::Owned(name.replace('/', ".")) } else { Cow::Borrowed(name) }
}

fn is_all(text: &str, wanted: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        for (internal, text) in [
            ("java/lang/String", "java.lang.String"),
            ("Main", "Main"),
            ("a/B$$Lambda$14/0x000000080011a040", "a.B$$Lambda"),
            ("a/B$$Lambda+0x000071a2c4001400", "a.B$$Lambda"),
            ("a/B$$Lambda$14/1234567", "a.B$$Lambda"),
            ("java/lang/invoke/LambdaForm$MH/0x00007f00", "java.lang.invoke.LambdaForm$MH"),
            ("a/B$1", "a.B$1"),
            ("a/0x", "a.0x"),
            ("a/B+0xyz", "a.B+0xyz"),
            ("", ""),
        ] {
            assert_eq!(class_text(internal), text);
        }
    }
}
