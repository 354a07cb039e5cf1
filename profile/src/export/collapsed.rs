//! Collapsed stacks: a line `root;...;leaf weight` for each distinct stack, the input of flame graph tools.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Options, Profiles};
use crate::dictionary::frame_parts::FrameParts;
use crate::dictionary::texts::Texts;
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::source::Sum;

/// Unit of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Sampling intervals of CPU time, rounded: a sample of three intervals counts as three.
    #[default]
    Samples,
    /// Nanoseconds of CPU time.
    Nanoseconds,
}

/// Writes the stacks of `profile` to `out`, sorted by their frames. Stacks lighter than half a unit are left out.
pub fn write(profile: &ProcessProfile, options: Options, mut out: impl Write) -> io::Result<()> {
    push(profile, options, false, &mut out)?;
    out.flush()
}

/// Writes the stacks of several processes, each sorted by its frames and begun with the service and the process id.
pub fn write_each(profiles: Profiles<'_>, options: Options, mut out: impl Write) -> Result<(), QueryError> {
    for profile in profiles {
        push(&profile?, options, true, &mut out)?;
    }
    Ok(out.flush()?)
}

fn push(profile: &ProcessProfile, options: Options, is_named: bool, out: &mut impl Write) -> io::Result<()> {
    let mut frames = FrameTexts { profile, options, texts: Texts::default(), by_frame: FxHashMap::default() };
    // Stacks with equal text (same methods, other lines) share a line. A line is a list of numbers: the texts of all
    // lines would take many times the memory of the profile.
    let mut lines: BTreeMap<Box<[u32]>, Sum> = BTreeMap::new();
    let title = is_named.then(|| frames.number(&profile.title()));
    for (thread, stack, cell) in profile.cells() {
        let mut line: Vec<u32> = title.into_iter().collect();
        let thread = options.threads.then(|| frames.thread(thread)).filter(|text| !text.is_empty());
        line.extend(thread.map(|text| frames.number(&text)));
        line.extend(profile.dictionary().path(stack).into_iter().rev().map(|frame| frames.frame(frame)));
        lines.entry(line.into()).or_default().add(cell);
    }
    let (texts, ranks) = (&frames.texts, frames.ranks());
    let rank_of = |number: &u32| ranks.get(*number as usize);
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable_by(|(one, _), (other, _)| one.iter().map(rank_of).cmp(other.iter().map(rank_of)));
    let interval_ns = profile.hello().interval_ns;
    let mut text = String::new();
    for (line, Sum { cpu_ns, samples }) in lines {
        let weight = match options.unit {
            Unit::Nanoseconds => cpu_ns,
            Unit::Samples if interval_ns > 0 => cpu_ns.saturating_add(interval_ns / 2) / interval_ns,
            // Without a known interval, the weight is the number of samples.
            Unit::Samples => samples,
        };
        if weight > 0 {
            text.clear();
            line.iter().for_each(|&number| {
                text.push_str(if text.is_empty() { "" } else { ";" });
                text.push_str(texts.get(number).unwrap_or_default());
            });
            writeln!(out, "{text} {weight}")?;
        }
    }
    Ok(())
}

/// The distinct texts of a profile's frames and threads, numbered in order of first use.
struct FrameTexts<'p> {
    profile: &'p ProcessProfile,
    options: Options,
    texts: Texts,
    by_frame: FxHashMap<u32, u32>,
}

impl FrameTexts<'_> {
    /// Returns the number of a text, in which the separator of the format is replaced; it has no line ends.
    fn number(&mut self, text: &str) -> u32 {
        let text = text.replace(';', ":");
        self.texts.find(&text).unwrap_or_else(|| self.texts.add(&text))
    }

    fn frame(&mut self, frame: u32) -> u32 {
        if let Some(&number) = self.by_frame.get(&frame) {
            return number;
        }
        let parts = FrameParts::of(self.profile.dictionary(), frame);
        let mut text = match self.options.internal_names && !parts.class.is_empty() {
            true => format!("{}.{}", parts.class, parts.method),
            false => parts.text,
        };
        if self.options.lines && parts.line > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ":{}", parts.line);
        }
        let number = self.number(&text);
        self.by_frame.insert(frame, number);
        number
    }

    /// Returns the text of a thread.
    fn thread(&self, thread: u32) -> String {
        let name = self.profile.thread_name(thread);
        match self.profile.thread(thread).filter(|_| self.options.internal_names) {
            Some(thread) => format!("[{name} tid={}]", thread.tid),
            None => name.to_owned(),
        }
    }

    /// Returns the place of each text in their alphabetical order, by number.
    fn ranks(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = (0..self.texts.len() as u32).collect();
        sorted.sort_unstable_by_key(|&number| self.texts.get(number));
        let mut ranks = vec![0; sorted.len()];
        (0..).zip(sorted).for_each(|(rank, number)| ranks[number as usize] = rank);
        ranks
    }
}
