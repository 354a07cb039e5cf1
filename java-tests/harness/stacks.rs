//! Parses the weighted stacks of `tickwalk export --format collapsed --unit ns`.

use std::collections::{BTreeMap, BTreeSet};

/// A stack and the CPU time sampled in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Frame names, root first, without the stop reason.
    pub frames: Vec<String>,
    /// Stop reason of the walk, if it did not end at the root.
    pub stop: Option<String>,
    /// Sampled CPU time in nanoseconds.
    pub ns: u64,
}

impl Stack {
    /// Returns whether the stack was not copied, or only its newest part, because the snapshot pool was full.
    pub fn lacks_copy(&self) -> bool {
        matches!(self.stop.as_deref(), Some("pool_exhausted" | "copy_end"))
    }

    /// Returns the number of frames of this name.
    pub fn count(&self, frame: &str) -> usize {
        self.frames.iter().filter(|name| *name == frame).count()
    }

    /// Returns whether a frame of this name is on the stack.
    pub fn has(&self, frame: &str) -> bool {
        self.count(frame) > 0
    }

    /// Returns whether the frames of `chain` are adjacent on the stack, in this order.
    pub fn has_chain(&self, chain: &[&str]) -> bool {
        self.frames
            .windows(chain.len())
            .any(|window| window.iter().zip(chain).all(|(frame, name)| frame == name))
    }
}

/// CPU time of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodWeight {
    /// `package.Class.method`, or the symbol of a native function.
    pub name: String,
    /// Sampled while it was the leaf, in nanoseconds.
    pub self_ns: u64,
    /// Sampled while it was anywhere on the stack, in nanoseconds.
    pub total_ns: u64,
}

/// All stacks of a profile.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    /// The stacks in the order of the export.
    pub all: Vec<Stack>,
}

impl Stacks {
    /// Parses collapsed lines `[stop];root;...;leaf WEIGHT`; the stop reason in brackets is optional.
    ///
    /// # Panics
    /// On a line without a weight.
    pub fn parse_collapsed(text: &str) -> Self {
        Self { all: text.lines().filter(|line| !line.trim().is_empty()).map(parse_line).collect() }
    }

    /// Returns the CPU time of all stacks.
    pub fn total_ns(&self) -> u64 {
        self.all.iter().map(|stack| stack.ns).sum()
    }

    /// Returns the CPU time of the stacks that match.
    pub fn ns_where(&self, matches: impl Fn(&Stack) -> bool) -> u64 {
        self.all.iter().filter(|stack| matches(stack)).map(|stack| stack.ns).sum()
    }

    /// Returns the CPU time of the stacks with a frame of this name.
    pub fn ns_below(&self, frame: &str) -> u64 {
        self.ns_where(|stack| stack.has(frame))
    }

    /// Returns the stacks with a frame of this name.
    pub fn below(&self, frame: &str) -> Self {
        Self { all: self.all.iter().filter(|stack| stack.has(frame)).cloned().collect() }
    }

    /// Returns the share of the CPU time in stacks that match, 0 to 1; 0 for an empty profile.
    pub fn share_where(&self, matches: impl Fn(&Stack) -> bool) -> f64 {
        self.ns_where(matches) as f64 / (self.total_ns().max(1) as f64)
    }

    /// Returns the methods, ordered by falling self time.
    pub fn hot_methods(&self) -> Vec<MethodWeight> {
        let mut methods: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for stack in &self.all {
            for name in stack.frames.iter().map(String::as_str).collect::<BTreeSet<_>>() {
                methods.entry(name).or_default().1 += stack.ns;
            }
            if let Some(leaf) = stack.frames.last() {
                methods.entry(leaf).or_default().0 += stack.ns;
            }
        }
        let mut weights: Vec<MethodWeight> = methods
            .into_iter()
            .map(|(name, (self_ns, total_ns))| MethodWeight { name: name.to_owned(), self_ns, total_ns })
            .collect();
        weights.sort_by(|a, b| b.self_ns.cmp(&a.self_ns).then_with(|| a.name.cmp(&b.name)));
        weights
    }
}

/// Root frames of threads that run no Java.
const THREAD_KINDS: [&str; 4] = ["[JIT compiler]", "[GC]", "[VM]", "[native thread]"];

fn parse_line(line: &str) -> Stack {
    let (path, weight) =
        line.rsplit_once(' ').unwrap_or_else(|| panic!("no weight in collapsed line {line:?}"));
    let ns = weight.parse().unwrap_or_else(|_| panic!("no weight in collapsed line {line:?}"));
    let mut frames: Vec<String> = path.split(';').map(str::to_owned).collect();
    // async-profiler's form of a thread.
    if let Some((name, _)) = frames[0].strip_prefix('[').and_then(|first| first.rsplit_once(" tid=")) {
        frames[0] = name.to_owned();
    }
    // The kind of a thread without Java is in brackets as well, but is a frame.
    let first = frames.first().filter(|first| !THREAD_KINDS.contains(&first.as_str()));
    let stop = first.and_then(|first| first.strip_prefix('[')?.strip_suffix(']')).map(str::to_owned);
    if stop.is_some() {
        frames.remove(0);
    }
    Stack { frames, stop, ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_collapsed_lines() {
        let stacks = Stacks::parse_collapsed("main;A.a;A.b 30\n[unreadable_memory];f(int, char);A.b 10\n");
        assert_eq!(stacks.total_ns(), 40);
        assert_eq!(stacks.all[0].stop, None);
        assert_eq!(stacks.all[1].stop.as_deref(), Some("unreadable_memory"));
        assert_eq!(stacks.all[1].frames, ["f(int, char)", "A.b"]);
        assert_eq!(stacks.ns_below("A.a"), 30);
        assert_eq!(Stacks::parse_collapsed("[main tid=7];A.a 1\n").all[0].frames, ["main", "A.a"]);
        assert!(stacks.all[0].has_chain(&["A.a", "A.b"]));
        assert!(!stacks.all[0].has_chain(&["main", "A.b"]));
    }

    #[test]
    fn totals_count_recursive_methods_once() {
        let stacks = Stacks::parse_collapsed("r;r;r 5\nr;s 2\n");
        let methods = stacks.hot_methods();
        assert_eq!(methods[0], MethodWeight { name: "r".to_owned(), self_ns: 5, total_ns: 7 });
        assert_eq!(methods[1], MethodWeight { name: "s".to_owned(), self_ns: 2, total_ns: 2 });
    }
}
