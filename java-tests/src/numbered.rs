//! What was seen of classes that differ in a number only, each of which runs on a thread of its own number.

use crate::stacks::Stack;

/// CPU time on the threads of such classes, in nanoseconds.
#[derive(Debug, Default)]
pub struct NumberedClasses {
    /// All of it.
    pub all: u64,
    /// With a frame that names one of the classes.
    pub named: u64,
    /// With a frame `[unloaded]`.
    pub unloaded: u64,
    /// Stacks that name what cannot have run.
    pub wrong: Vec<Stack>,
}

impl NumberedClasses {
    /// Looks at each stack below its thread's name.
    ///
    /// The classes are named `CLASS` and five digits, their threads `THREAD` and the number. `is_elsewhere` chooses frames
    /// of theirs that other threads run too; `is_foreign` frames that theirs never run.
    pub fn of(
        stacks: Vec<Stack>,
        (class, thread): (&str, &str),
        is_elsewhere: impl Fn(&str, &str) -> bool,
        is_foreign: impl Fn(&str) -> bool,
    ) -> Self {
        let mut seen = Self::default();
        for stack in stacks {
            let (name, frames) = stack.frames.split_first().expect("a thread");
            let owner: Option<u32> = name.strip_prefix(thread).and_then(|number| number.parse().ok());
            let own = frames.iter().filter(|frame| !is_elsewhere(name, frame));
            let found: Vec<_> = own.filter_map(|frame| number(class, frame)).collect();
            let mut is_wrong = found.iter().any(|(number, agrees)| !agrees || Some(*number) != owner);
            if owner.is_some() {
                is_wrong |= frames.iter().any(|frame| is_foreign(frame));
                seen.all += stack.ns;
                seen.named += if found.is_empty() { 0 } else { stack.ns };
                seen.unloaded += if stack.has("[unloaded]") { stack.ns } else { 0 };
            }
            if is_wrong {
                seen.wrong.push(stack);
            }
        }
        seen
    }

    /// Share of `part` in all, 0 to 1.
    pub fn share(&self, part: u64) -> f64 {
        part as f64 / self.all as f64
    }
}

/// The number of the class that a frame names, and whether class and method agree about it.
fn number(class: &str, frame: &str) -> Option<(u32, bool)> {
    let (number, method) = frame.strip_prefix(class)?.split_at_checked(5)?;
    let method = method.strip_prefix('.')?;
    let agrees = ["work", "spin"].map(|name| format!("{name}{number}")).iter().any(|name| name == method)
        || ["run", "<init>"].contains(&method);
    Some((number.parse().ok()?, agrees))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_another_class_is_wrong() {
        let stack = |frames: &[&str]| Stack {
            frames: frames.iter().map(|&frame| frame.to_owned()).collect(),
            stop: None,
            ns: 1,
        };
        let stacks = vec![
            stack(&["gen-7", "Gen00007.run", "Gen00007.work00007"]),
            stack(&["gen-7", "Gen00007.run", "[unloaded]"]),
            stack(&["gen-7", "Gen00008.run"]),
            stack(&["gen-7", "Gen00007.work00008"]),
            stack(&["gen-7", "Other.main"]),
            stack(&["main", "Gen00007.<init>"]),
            stack(&["main", "Gen00007.run"]),
        ];
        let constructs = |thread: &str, frame: &str| thread == "main" && frame.ends_with(".<init>");
        let seen = NumberedClasses::of(stacks, ("Gen", "gen-"), constructs, |frame| frame == "Other.main");
        assert_eq!((seen.all, seen.named, seen.unloaded), (5, 4, 1));
        let wrong: Vec<&str> = seen.wrong.iter().map(|stack| stack.frames[1].as_str()).collect();
        assert_eq!(wrong, ["Gen00008.run", "Gen00007.work00008", "Other.main", "Gen00007.run"]);
    }
}
