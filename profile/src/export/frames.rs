//! The distinct frames of the written stacks, numbered in order of first use.

use rustc_hash::FxHashMap;

use crate::dictionary::frame_parts::FrameParts;
use crate::dictionary::stop::is_whole;
use crate::query::process::ProcessProfile;

/// The distinct frames of the stacks written so far.
#[derive(Debug)]
pub struct Frames<'p> {
    profile: &'p ProcessProfile,
    parts: Vec<FrameParts>,
    numbers: FxHashMap<u32, u32>,
}

impl<'p> Frames<'p> {
    /// Returns an empty table for stacks of `profile`.
    pub fn new(profile: &'p ProcessProfile) -> Self {
        Frames { profile, parts: Vec::new(), numbers: FxHashMap::default() }
    }

    /// Returns the numbers of a stack's frames, leaf first. An incomplete stack has a frame `[reason]` at its root.
    pub fn stack(&mut self, stack: u32) -> Vec<u32> {
        let dictionary = self.profile.dictionary();
        let path = dictionary.path(stack).into_iter();
        path.map(|frame| {
            *self.numbers.entry(frame).or_insert_with(|| {
                self.parts.push(FrameParts::of(dictionary, frame));
                (self.parts.len() - 1) as u32
            })
        })
        .collect()
    }

    /// Returns all frames so far, by number.
    pub fn all(&self) -> &[FrameParts] {
        &self.parts
    }

    /// Returns whether the stack is incomplete: callers are missing.
    pub fn is_cut(&self, stack: u32) -> bool {
        !is_whole(self.profile.root_of(stack))
    }
}
