//! speedscope: a JSON file for the viewer of that name, with a profile for each thread.
//!
//! Samples of a thread are in the order of their times, for the viewer's time order; weights are nanoseconds of CPU
//! time. Frames of equal name and file are one frame, regardless of their lines, because the viewer sums by frame;
//! with [`Options::lines`] each line is a frame.
//!
//! Source: speedscope, `file-format-spec` and `file-format-schema.json`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use super::frames::Frames;
use super::{Options, Profiles};
use crate::dictionary::frame_parts::FrameParts;
use crate::dictionary::stop::UNKNOWN;
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Serialize, Default)]
struct Shared {
    frames: Vec<Frame>,
    #[serde(skip)]
    positions: FxHashMap<Frame, usize>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Rows,
    weights: Vec<u64>,
}

/// Stacks of samples; a stack is stored once and written for each sample.
struct Rows {
    stacks: Rc<FxHashMap<u32, Vec<usize>>>,
    of_samples: Vec<u32>,
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.of_samples.iter().map(|stack| &self.stacks[stack]))
    }
}

/// Writes `profile` to `out`; the busiest thread comes first.
pub fn write(profile: &ProcessProfile, options: Options, out: impl Write) -> io::Result<()> {
    let mut file = File::new(profile.session().subject());
    file.add(profile, options, "");
    file.write(out)
}

/// Writes several processes to `out`; names of threads begin with their process.
pub fn write_each(profiles: Profiles<'_>, options: Options, out: impl Write) -> Result<(), QueryError> {
    let mut file = File::new("several processes".to_owned());
    for profile in profiles {
        let profile = profile?;
        file.add(&profile, options, &format!("{}: ", profile.title()));
    }
    Ok(file.write(out)?)
}

impl File {
    fn new(name: String) -> Self {
        let exporter = concat!("tickwalk ", env!("CARGO_PKG_VERSION"));
        let (shared, profiles) = (Shared::default(), Vec::new());
        File { schema: SCHEMA, name, exporter, active_profile_index: 0, shared, profiles }
    }

    fn add(&mut self, profile: &ProcessProfile, options: Options, prefix: &str) {
        let mut frames = Frames::new(profile);
        let mut paths: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        // Stacks and weights of the samples by thread.
        let mut threads: BTreeMap<u32, (Vec<u32>, Vec<u64>)> = BTreeMap::new();
        for sample in profile.samples() {
            paths.entry(sample.stack).or_insert_with(|| frames.stack(sample.stack));
            let (stacks, weights) = threads.entry(sample.thread).or_default();
            stacks.push(sample.stack);
            weights.push(sample.cpu_ns);
        }
        let positions: Vec<usize> =
            frames.all().iter().map(|frame| self.shared.position(frame, options.lines)).collect();
        let root_first =
            |frames: Vec<u32>| frames.into_iter().rev().map(|frame| positions[frame as usize]).collect();
        let stacks: Rc<FxHashMap<u32, Vec<usize>>> =
            Rc::new(paths.into_iter().map(|(id, frames)| (id, root_first(frames))).collect());
        self.profiles.extend(threads.into_iter().map(|(thread, (of_samples, weights))| Sampled {
            r#type: "sampled",
            name: format!("{prefix}{}", thread_name(profile, thread)),
            unit: "nanoseconds",
            start_value: 0,
            end_value: weights.iter().fold(0, |sum: u64, &weight| sum.saturating_add(weight)),
            samples: Rows { stacks: Rc::clone(&stacks), of_samples },
            weights,
        }));
    }

    fn write(mut self, mut out: impl Write) -> io::Result<()> {
        self.profiles.sort_by_key(|sampled| std::cmp::Reverse(sampled.end_value));
        serde_json::to_writer(&mut out, &self)?;
        out.flush()
    }
}

impl Shared {
    fn position(&mut self, parts: &FrameParts, has_lines: bool) -> usize {
        let line = Some(parts.line).filter(|&line| has_lines && line > 0);
        let frame = Frame { name: parts.text.clone(), file: parts.file.clone(), line };
        *self.positions.entry(frame).or_insert_with_key(|frame| {
            self.frames.push(frame.clone());
            self.frames.len() - 1
        })
    }
}

fn thread_name(profile: &ProcessProfile, id: u32) -> String {
    match profile.thread(id) {
        None => UNKNOWN.to_owned(),
        Some(thread) => format!("{} (tid {})", thread.name, thread.tid),
    }
}
