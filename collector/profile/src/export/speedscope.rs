//! speedscope: a JSON file for the viewer of that name, with a profile for each thread.
//!
//! Samples of a thread are in the order of their times, for the viewer's time order; weights are nanoseconds of CPU time.
//! Frames of equal name and file are one frame, regardless of their lines, because the viewer sums by frame; with
//! [`Options::lines`] each line is a frame.
//!
//! Source: speedscope, `file-format-spec` and `file-format-schema.json`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use super::Options;
use super::frames::Frames;
use crate::process::ProcessProfile;
use crate::stop::UNKNOWN;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    exporter: &'static str,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Rows<'a>,
    weights: Vec<u64>,
}

/// Stacks of samples; a stack is stored once and written at each use.
struct Rows<'a> {
    stacks: &'a FxHashMap<u32, Vec<usize>>,
    of_samples: Vec<u32>,
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.of_samples.iter().map(|stack| &self.stacks[stack]))
    }
}

/// Writes `profile` to `out`; the busiest thread comes first.
///
/// # Errors
/// If writing fails.
pub fn write(profile: &ProcessProfile, options: Options, mut out: impl Write) -> io::Result<()> {
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
    let (shared, shared_frame_of) = shared_frames(&frames, options.lines);
    let root_first =
        |frames: Vec<u32>| frames.into_iter().rev().map(|frame| shared_frame_of[frame as usize]).collect();
    let stacks: FxHashMap<u32, Vec<usize>> =
        paths.into_iter().map(|(id, frames)| (id, root_first(frames))).collect();
    let mut profiles: Vec<Sampled> = threads
        .into_iter()
        .map(|(thread, (of_samples, weights))| Sampled {
            r#type: "sampled",
            name: thread_name(profile, thread),
            unit: "nanoseconds",
            start_value: 0,
            end_value: weights.iter().fold(0, |sum: u64, &weight| sum.saturating_add(weight)),
            samples: Rows { stacks: &stacks, of_samples },
            weights,
        })
        .collect();
    profiles.sort_by_key(|sampled| std::cmp::Reverse(sampled.end_value));
    let file = File {
        schema: SCHEMA,
        name: profile.session().service(),
        exporter: concat!("tickwalk ", env!("CARGO_PKG_VERSION")),
        active_profile_index: 0,
        shared: Shared { frames: shared },
        profiles,
    };
    serde_json::to_writer(&mut out, &file)?;
    out.flush()
}

fn thread_name(profile: &ProcessProfile, id: u32) -> String {
    match profile.thread(id) {
        None => UNKNOWN.to_owned(),
        Some(thread) => format!("{} (tid {})", thread.name, thread.tid),
    }
}

/// Returns the frames of the file, and the position of each of `frames` in them.
fn shared_frames<'f>(frames: &'f Frames, has_lines: bool) -> (Vec<Frame<'f>>, Vec<usize>) {
    let mut shared = Vec::new();
    let mut positions: FxHashMap<(&str, &str, Option<u32>), usize> = FxHashMap::default();
    let of_frames = frames
        .all()
        .iter()
        .map(|frame| {
            let (name, file) = (frame.text.as_str(), frame.file.as_str());
            let line = Some(frame.line).filter(|&line| has_lines && line > 0);
            *positions.entry((name, file, line)).or_insert_with(|| {
                shared.push(Frame { name, file, line });
                shared.len() - 1
            })
        })
        .collect();
    (shared, of_frames)
}
