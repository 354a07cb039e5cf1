//! Checks the names of generated classes: classes of one shape whose names differ in a number, each of which runs on a
//! thread with the same number.

use crate::stacks::Stack;

/// CPU time sampled on the threads of generated classes, in nanoseconds.
#[derive(Debug, Default)]
pub struct GeneratedClasses {
    /// Total.
    pub total_ns: u64,
    /// In stacks that name one of the classes.
    pub named_ns: u64,
    /// In stacks with a frame `[unloaded]`.
    pub unloaded_ns: u64,
    /// Stacks that name a method which cannot have run there.
    pub wrong: Vec<Stack>,
}

impl GeneratedClasses {
    /// Checks stacks whose first frame is the thread's name.
    ///
    /// The classes are named `CLASS` and five digits, their threads `THREAD` and the number. `is_shared` selects the
    /// frames of generated classes that other threads run as well, `is_foreign` the frames that their threads never
    /// run.
    pub fn of(
        stacks: Vec<Stack>,
        (class, thread): (&str, &str),
        is_shared: impl Fn(&str, &str) -> bool,
        is_foreign: impl Fn(&str) -> bool,
    ) -> Self {
        let mut result = Self::default();
        for stack in stacks {
            let (name, frames) = stack.frames.split_first().expect("the thread's name is the first frame");
            let owner: Option<u32> = name.strip_prefix(thread).and_then(|number| number.parse().ok());
            let own = frames.iter().filter(|frame| !is_shared(name, frame));
            let found: Vec<_> = own.filter_map(|frame| class_number(class, frame)).collect();
            let mut is_wrong = found.iter().any(|(number, agrees)| !agrees || Some(*number) != owner);
            if owner.is_some() {
                is_wrong |= frames.iter().any(|frame| is_foreign(frame));
                result.total_ns += stack.ns;
                result.named_ns += if found.is_empty() { 0 } else { stack.ns };
                result.unloaded_ns += if stack.has("[unloaded]") { stack.ns } else { 0 };
            }
            if is_wrong {
                result.wrong.push(stack);
            }
        }
        result
    }

    /// Returns the share of `part_ns` in the total, 0 to 1.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.total_ns as f64
    }
}

/// Returns the number of the class that a frame names, and whether the method's name has the same number.
fn class_number(class: &str, frame: &str) -> Option<(u32, bool)> {
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
    fn names_of_other_classes_are_wrong() {
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
        let is_constructor = |thread: &str, frame: &str| thread == "main" && frame.ends_with(".<init>");
        let is_foreign = |frame: &str| frame == "Other.main";
        let classes = GeneratedClasses::of(stacks, ("Gen", "gen-"), is_constructor, is_foreign);
        assert_eq!((classes.total_ns, classes.named_ns, classes.unloaded_ns), (5, 4, 1));
        let wrong: Vec<&str> = classes.wrong.iter().map(|stack| stack.frames[1].as_str()).collect();
        assert_eq!(wrong, ["Gen00008.run", "Gen00007.work00008", "Other.main", "Gen00007.run"]);
    }
}
