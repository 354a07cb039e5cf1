//! Entries as a profile keeps them: under their numbers. A stack is written out when the first sample names it.

use proto::v1::Entries;

use super::{Frame, Method, Profile, Stack};
use crate::numbered::{self, MAX_DEPTH, MAX_STACK_FRAMES, Runs};

/// The forest of callers.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Caller (0 for a root), frame or string, and frames from the root on.
    rows: Runs<(u32, u32, u32)>,
    /// Frames of all stacks that were written out.
    written: u64,
}

impl Profile {
    pub(super) fn add_numbered(&mut self, entries: &Entries) {
        self.strings
            .extend(numbered::strings(entries).map(|(number, text)| (number.into(), text.to_owned().into())));
        self.methods.extend(numbered::methods(entries).map(|(number, method)| {
            let id = u64::from(number);
            let row = Method {
                id,
                class_name: method.class_name.into(),
                name: method.name.into(),
                signature: method.signature.into(),
                source_file: method.source_file.into(),
                modifiers: method.modifiers,
                hidden: method.hidden,
            };
            (id, row)
        }));
        self.frames.extend(numbered::frames(entries).map(|(number, frame)| {
            let id = u64::from(number);
            let (method, symbol) = (frame.method.into(), frame.symbol.into());
            (id, Frame { id, kind: frame.kind.into(), method, bci: frame.bci, line: frame.line, symbol })
        }));
        for (number, parent, frame) in numbered::nodes(entries) {
            let depth = match parent {
                0 => Some(0),
                parent => self.nodes.rows.get(parent).map(|(.., depth)| depth + 1),
            };
            if let Some(depth) = depth.filter(|&depth| depth <= MAX_DEPTH) {
                self.nodes.rows.push(number, (parent, frame, depth));
            }
        }
    }

    /// Writes out the stack that ends in node `id`, if it is known and was not written out before.
    pub(super) fn define_node(&mut self, id: u64) {
        if self.stacks.contains_key(&id) {
            return;
        }
        let known = u32::try_from(id).ok().and_then(|number| self.nodes.rows.get(number));
        let Some(&(mut parent, mut frame, depth)) = known else { return };
        if self.nodes.written + u64::from(depth) > MAX_STACK_FRAMES {
            return;
        }
        self.nodes.written += u64::from(depth);
        let mut frames = Vec::with_capacity(depth as usize);
        while parent != 0 {
            frames.push(frame.into());
            // Nodes are known only if their callers are.
            (parent, frame, _) = self.nodes.rows.get(parent).copied().unwrap_or_default();
        }
        let stop = match frame {
            0 => super::END_OF_STACK,
            string => self.strings.get(&string.into()).map_or(super::UNKNOWN, |text| text),
        };
        let stack = Stack { id, frames, stop: stop.to_owned() };
        self.stacks.insert(id, stack);
    }
}

#[cfg(test)]
mod tests {
    use proto::v1::{Dictionary, Hello};

    use super::*;

    #[test]
    fn a_root_without_a_reason_is_the_end_of_the_stack() {
        let mut profile = Profile::new(Hello::default());
        let numbered = Entries {
            first_string: 1,
            string: vec!["depth_limit".into()],
            first_node: 1,
            node_parent: vec![0, 0, 0],
            node_frame: vec![0, 1, 2],
            ..Entries::default()
        };
        profile.add_dictionary(Dictionary { entries: Some(numbered), ..Dictionary::default() });
        let stops: Vec<String> = (1..=3)
            .map(|node| {
                profile.define_node(node);
                profile.stop_of(node).to_owned()
            })
            .collect();
        assert_eq!(stops, ["end_of_stack", "depth_limit", "[unknown]"]);
    }
}
