//! Dictionary entries by the numbers that the agent assigned.
//!
//! Numbers are local to a session, and a hostile agent may send any number. Entries of one message have consecutive
//! numbers, so they are kept as runs; an honest session has one run of each kind, or a second one if its agent had to
//! drop entries.
//! Invariants: memory is proportional to the received data, whatever the numbers are; the entry of a number never
//! changes; a node's caller has a lower number than the node.

use proto::ThreadState;
use proto::v1::{Entries, FrameKind};

use super::tables::{FrameRow, MethodRow};

/// Maximum number of frames of a stack; agents walk up to 65,536 and add a few markers. Deeper nodes are unknown.
pub const MAX_DEPTH: u32 = 66_000;

/// Maximum number of frames of all stacks of a session: the entries of one connection may have 1 GiB, with eight bytes
/// per frame. Stacks beyond it are unknown.
pub const MAX_STACK_FRAMES: u64 = 128 << 20;

/// Rows by number, in runs of consecutive numbers.
#[derive(Clone, Debug)]
pub struct Runs<T> {
    /// First number and rows of each run, ascending, with gaps in between.
    runs: Vec<(u32, Vec<T>)>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Runs { runs: Vec::new() }
    }
}

impl<T> Runs<T> {
    /// Returns the number after the last one; 1 if empty, because 0 means none.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(1, |(first, rows)| first.saturating_add(rows.len() as u32))
    }

    /// Adds `row` as `number` if that is free. Returns whether it was added.
    pub fn push(&mut self, number: u32, row: T) -> bool {
        let end = self.end();
        match self.runs.last_mut() {
            _ if number < end || number == u32::MAX => return false,
            Some((_, rows)) if number == end => rows.push(row),
            _ => self.runs.push((number, vec![row])),
        }
        true
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let (first, rows) = match self.runs.last() {
            Some(last) if last.0 <= number => last,
            _ => &self.runs[self.runs.partition_point(|(first, _)| *first <= number).checked_sub(1)?],
        };
        rows.get((number - first) as usize)
    }

    /// Returns numbers and rows from `number` on, ascending.
    pub fn since(&self, number: u32) -> impl Iterator<Item = (u32, &T)> {
        let all = self.runs.iter().flat_map(|(first, rows)| numbers(*first).zip(rows));
        all.skip_while(move |(own, _)| *own < number)
    }

    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    pub fn len(&self) -> usize {
        self.runs.iter().map(|(_, rows)| rows.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the results of `row` under the same numbers.
    pub fn map<U>(&self, mut row: impl FnMut(&T) -> U) -> Runs<U> {
        let run = |(first, rows): &(u32, Vec<T>)| (*first, rows.iter().map(&mut row).collect());
        Runs { runs: self.runs.iter().map(run).collect() }
    }
}

/// Returns the numbers from `first` on; none if `first` is 0.
fn numbers(first: u32) -> std::ops::Range<u32> {
    if first == 0 { 0..0 } else { first..u32::MAX }
}

pub fn strings(entries: &Entries) -> impl Iterator<Item = (u32, &str)> {
    numbers(entries.first_string).zip(entries.string.iter().map(String::as_str))
}

/// Returns the methods that are complete in all columns; their strings are numbers of the session.
pub fn methods(entries: &Entries) -> impl Iterator<Item = (u32, MethodRow)> + '_ {
    let names = entries.method_class.iter().zip(&entries.method_name).zip(&entries.method_signature);
    let rows = names.zip(&entries.method_source).zip(&entries.method_modifiers);
    let rows = rows.map(|((((&class_name, &name), &signature), &source_file), &modifiers)| {
        let (modifiers, hidden) = (modifiers >> 1, modifiers & 1 == 1);
        MethodRow { id: 0, class_name, name, signature, source_file, modifiers, hidden }
    });
    numbers(entries.first_method).zip(rows)
}

/// Returns the frames that are complete in all columns; method and strings are numbers of the session.
pub fn frames(entries: &Entries) -> impl Iterator<Item = (u32, FrameRow)> + '_ {
    let rows = entries.frame_kind.iter().zip(&entries.frame_method).zip(&entries.frame_bci);
    let libraries = entries.frame_library.iter().copied().chain(std::iter::repeat(0));
    let rows = rows.zip(&entries.frame_line).zip(&entries.frame_symbol).zip(libraries);
    let rows = rows.map(|(((((&kind, &method), &bci), &line), &symbol), library)| {
        let kind = FrameKind::try_from(kind).unwrap_or_default() as u8;
        FrameRow { id: 0, kind, method, bci, line, symbol, library }
    });
    numbers(entries.first_frame).zip(rows)
}

/// A node of the call tree.
pub struct NodeEntry {
    pub number: u32,
    /// Number of the caller's node, 0 for a root.
    pub parent: u32,
    /// Frame, or the string of a root.
    pub frame: u32,
    /// State of the thread; only roots may have one.
    pub state: Option<ThreadState>,
}

/// Returns the nodes that are complete in both columns.
pub fn nodes(entries: &Entries) -> impl Iterator<Item = NodeEntry> + '_ {
    let rows = numbers(entries.first_node).zip(entries.node_parent.iter().zip(&entries.node_frame));
    let states = entries.node_state.iter().copied().chain(std::iter::repeat(0));
    // A distance beyond the first number is invalid; taken as number 0, the node would become a root.
    rows.zip(states).filter(|((number, (back, _)), _)| **back < *number).map(
        |((number, (&back, &frame)), state)| {
            let parent = if back == 0 { 0 } else { number - back };
            NodeEntry { number, parent, frame, state: ThreadState::of_number(state) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_begin_anywhere_and_are_never_redefined() {
        let mut runs = Runs::default();
        for (number, row) in [(3, 'c'), (4, 'd'), (4, 'x'), (1, 'x'), (9, 'i'), (10, 'j'), (u32::MAX, 'x')] {
            runs.push(number, row);
        }
        let known: Vec<_> = (0..12).filter_map(|number| Some((number, *runs.get(number)?))).collect();
        assert_eq!(known, [(3, 'c'), (4, 'd'), (9, 'i'), (10, 'j')]);
        assert_eq!(runs.since(4).map(|(number, _)| number).collect::<Vec<_>>(), [4, 9, 10]);
        assert_eq!((runs.end(), runs.len()), (11, 4));
        assert_eq!(runs.map(|row| *row as u32).get(4), Some(&('d' as u32)));
        assert_eq!(runs.get(u32::MAX), None);
    }

    #[test]
    fn nodes_follow_their_callers() {
        let entries = Entries {
            first_node: 5,
            node_parent: vec![0, 1, 6, 8, 9],
            node_frame: vec![7, 8, 9, 10],
            node_state: vec![2],
            ..Entries::default()
        };
        let found = nodes(&entries).map(|node| (node.number, node.parent, node.frame, node.state));
        let waiting = Some(ThreadState::Waiting);
        assert_eq!(found.collect::<Vec<_>>(), [(5, 0, 7, waiting), (6, 5, 8, None), (7, 1, 9, None)]);
        assert_eq!(nodes(&Entries { first_node: 0, ..entries }).count(), 0);
    }
}
