//! Definitions of wire version 1, whose ids are derived from content.
//!
//! Invariant: an id is shared between sessions only if it is the hash of its content (`design/wire-format.md`): no
//! agent can rename what another one sent. Other ids are valid for their session, until the collector ends.

use proto::v1::Dictionary as Definitions;
use rustc_hash::FxHashMap;

use super::{Dictionary, FrameRow, MethodRow, Node, UNKNOWN_STRING, content_id};
use crate::profile::END_OF_STACK;
use crate::quantity::table_bytes;

/// Ids of one session that are not derived from content.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct PrivateIds {
    strings: FxHashMap<u64, u32>,
    methods: FxHashMap<u64, u32>,
    frames: FxHashMap<u64, u32>,
    stacks: FxHashMap<u64, u32>,
}

impl PrivateIds {
    /// Most memory.
    pub(in super::super) fn bytes(&self) -> usize {
        let ids = self.strings.len() + self.methods.len() + self.frames.len() + self.stacks.len();
        table_bytes::<(u64, u32)>(ids)
    }

    /// Lets the ids mean in `new` what they mean in `old`.
    pub(in super::super) fn renumber(&mut self, new: &mut Dictionary, old: &Dictionary) {
        self.strings.values_mut().for_each(|number| *number = new.adopt_string(old.string(*number)));
        self.methods.values_mut().for_each(|number| *number = new.adopt_method(old, *number));
        self.frames.values_mut().for_each(|number| *number = new.adopt_frame(old, *number));
        self.stacks.values_mut().for_each(|number| *number = new.adopt(old, *number));
    }
}

impl Dictionary {
    /// The stack a session means by `id`; 0 if it was never defined.
    #[inline]
    pub(in super::super) fn stack_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        match self.known.stack_of.get(&id) {
            Some(&number) => number,
            None => private.and_then(|ids| ids.stacks.get(&id)).copied().unwrap_or(0),
        }
    }

    /// Takes in definitions of a session; the stacks among them are appended to `defined`.
    pub(in super::super) fn define(
        &mut self,
        definitions: &Definitions,
        private: &mut Option<Box<PrivateIds>>,
        defined: &mut Vec<u32>,
    ) {
        for entry in &definitions.strings {
            let number = self.intern(&entry.text);
            // Whatever is not known is taken for the unknown entry, so that one need not be remembered, here and below.
            if number == UNKNOWN_STRING {
                continue;
            }
            let is_shared = entry.id == content_id(1, &[], entry.text.as_bytes());
            self.share(
                private,
                is_shared,
                entry.id,
                number,
                |tables| &mut tables.known.string_of,
                |ids| &mut ids.strings,
            );
        }
        for method in &definitions.methods {
            let id = content_id(
                2,
                &[
                    method.class_name,
                    method.name,
                    method.signature,
                    method.source_file,
                    method.modifiers.into(),
                    method.hidden.into(),
                ],
                &[],
            );
            let is_shared = id == method.id;
            if is_shared && self.known.method_of.get(&id).is_some_and(|&known| self.is_whole_method(known)) {
                continue;
            }
            let string = |id| self.string_number(id, private.as_deref());
            let row = MethodRow {
                id: if is_shared { id } else { 0 },
                class_name: string(method.class_name),
                name: string(method.name),
                signature: string(method.signature),
                source_file: string(method.source_file),
                modifiers: method.modifiers,
                hidden: method.hidden,
            };
            let number = self.push_method(row);
            if number == 0 {
                continue;
            }
            self.share(
                private,
                is_shared,
                method.id,
                number,
                |tables| &mut tables.known.method_of,
                |ids| &mut ids.methods,
            );
        }
        for frame in &definitions.frames {
            let content = [
                frame.kind as u64,
                frame.method,
                u64::from(frame.bci as u32),
                frame.line.into(),
                frame.symbol,
            ];
            let is_shared = content_id(3, &content, &[]) == frame.id;
            if is_shared
                && self.known.frame_of.get(&frame.id).is_some_and(|&known| self.is_whole_frame(known))
            {
                continue;
            }
            let method = match frame.method {
                0 => None,
                id => Some(self.method_number(id, private.as_deref())),
            };
            let row = FrameRow {
                id: if is_shared { frame.id } else { 0 },
                kind: u8::try_from(frame.kind).unwrap_or_default(),
                method: method.unwrap_or_default(),
                bci: frame.bci,
                line: frame.line,
                symbol: match method {
                    // A Java frame whose method never came, or nothing at all to name the frame by.
                    Some(0) => UNKNOWN_STRING,
                    None if frame.symbol == 0 => UNKNOWN_STRING,
                    _ => self.string_number(frame.symbol, private.as_deref()),
                },
            };
            let number = self.push_frame(row);
            if number == 0 {
                continue;
            }
            self.share(
                private,
                is_shared,
                frame.id,
                number,
                |tables| &mut tables.known.frame_of,
                |ids| &mut ids.frames,
            );
        }
        for stack in &definitions.stacks {
            let is_shared = content_id(4, &stack.frames, stack.stop.as_bytes()) == stack.id;
            let known = self.known.stack_of.get(&stack.id).copied();
            if let Some(known) = known.filter(|&known| is_shared && self.is_whole_stack(known)) {
                defined.push(known);
                continue;
            }
            let stop = if stack.stop.is_empty() { END_OF_STACK } else { &stack.stop };
            let frames: Vec<u32> =
                stack.frames.iter().map(|&id| self.frame_number(id, private.as_deref())).collect();
            let number = self.push_stack(if is_shared { stack.id } else { 0 }, &frames, stop);
            if number == 0 {
                continue;
            }
            defined.push(number);
            self.share(
                private,
                is_shared,
                stack.id,
                number,
                |tables| &mut tables.known.stack_of,
                |ids| &mut ids.stacks,
            );
        }
    }

    fn share(
        &mut self,
        private: &mut Option<Box<PrivateIds>>,
        is_shared: bool,
        id: u64,
        number: u32,
        shared: fn(&mut Self) -> &mut FxHashMap<u64, u32>,
        own: fn(&mut PrivateIds) -> &mut FxHashMap<u64, u32>,
    ) {
        if is_shared {
            shared(self).insert(id, number);
        } else {
            own(private.get_or_insert_default()).insert(id, number);
        }
    }

    fn is_whole_method(&self, number: u32) -> bool {
        let method = self.method(number);
        ![method.class_name, method.name, method.signature, method.source_file].contains(&UNKNOWN_STRING)
    }

    fn is_whole_frame(&self, number: u32) -> bool {
        let frame = self.frame(number);
        match frame.method {
            0 => frame.symbol != UNKNOWN_STRING,
            method => self.is_whole_method(method),
        }
    }

    fn is_whole_stack(&self, number: u32) -> bool {
        let mut node = self.stack(number).node;
        while node != 0 {
            let Node { parent, frame } = self.nodes[node as usize];
            if !self.is_whole_frame(frame) {
                return false;
            }
            node = parent;
        }
        true
    }

    fn string_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        if id == 0 {
            return 0;
        }
        let known = self.known.string_of.get(&id).or_else(|| private.and_then(|ids| ids.strings.get(&id)));
        known.copied().unwrap_or(UNKNOWN_STRING)
    }

    fn method_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        let known = self.known.method_of.get(&id).or_else(|| private.and_then(|ids| ids.methods.get(&id)));
        known.copied().unwrap_or(0)
    }

    fn frame_number(&self, id: u64, private: Option<&PrivateIds>) -> u32 {
        let known = self.known.frame_of.get(&id).or_else(|| private.and_then(|ids| ids.frames.get(&id)));
        known.copied().unwrap_or(0)
    }
}
