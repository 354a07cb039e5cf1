//! Which threads are sampled, by name and by kind.

use profile::text::pattern::matches;
use sampler_thread::process::ThreadKind;

/// Begins a kind among names, as in `kind=gc`.
const KIND: &str = "kind=";

/// Kinds as the options have them.
const KINDS: [(&str, ThreadKind); 5] = [
    ("java", ThreadKind::Java),
    ("compiler", ThreadKind::Compiler),
    ("gc", ThreadKind::Gc),
    ("vm", ThreadKind::Vm),
    ("native", ThreadKind::Native),
];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadChoice {
    /// Threads that are sampled; all if this is empty.
    sampled: Vec<Form>,
    /// Threads that are not sampled although `sampled` has them.
    skipped: Vec<Form>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// Its name, in which `*` stands for any text.
    Name(String),
    Kind(ThreadKind),
}

impl Form {
    fn has(&self, name: &str, kind: ThreadKind) -> bool {
        match self {
            Self::Name(pattern) => matches(pattern, name),
            Self::Kind(known) => *known == kind,
        }
    }
}

impl ThreadChoice {
    /// Adds threads that are sampled; `None` if `text` is malformed.
    pub fn sample(&mut self, text: &str) -> Option<()> {
        self.sampled.extend(forms(text)?);
        Some(())
    }

    /// Adds threads that are not sampled; `None` if `text` is malformed.
    pub fn skip(&mut self, text: &str) -> Option<()> {
        self.skipped.extend(forms(text)?);
        Some(())
    }

    /// Returns whether no thread is left out.
    pub fn is_everyone(&self) -> bool {
        self.sampled.is_empty() && self.skipped.is_empty()
    }

    pub fn has(&self, name: &str, kind: ThreadKind) -> bool {
        let is_in = |forms: &[Form]| forms.iter().any(|form| form.has(name, kind));
        (self.sampled.is_empty() || is_in(&self.sampled)) && !is_in(&self.skipped)
    }
}

/// Reads names and kinds that are separated by colons.
fn forms(text: &str) -> Option<Vec<Form>> {
    let form = |part: &str| match part.strip_prefix(KIND) {
        Some(kind) => KINDS.iter().find(|(name, _)| *name == kind).map(|(_, kind)| Form::Kind(*kind)),
        None => (!part.is_empty()).then(|| Form::Name(part.to_owned())),
    };
    text.split(':').map(form).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_kinds() {
        let mut choice = ThreadChoice::default();
        assert!(choice.has("any", ThreadKind::Vm) && choice.is_everyone());
        choice.skip("http-*-Acceptor:kind=compiler").expect("valid");
        assert!(choice.has("main", ThreadKind::Java) && !choice.has("http-80-Acceptor", ThreadKind::Java));
        assert!(!choice.has("C2 CompilerThread0", ThreadKind::Compiler));
        choice.sample("http-*").expect("valid");
        choice.sample("kind=gc").expect("valid");
        assert!(choice.has("http-80-1", ThreadKind::Java) && choice.has("G1 Main Marker", ThreadKind::Gc));
        assert!(!choice.has("main", ThreadKind::Java) && !choice.has("http-80-Acceptor", ThreadKind::Java));
        for text in ["", "a::b", "kind=", "kind=virtual"] {
            assert!(choice.sample(text).is_none() && choice.skip(text).is_none(), "{text}");
        }
    }
}
