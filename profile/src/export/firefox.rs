//! The processed profile format of the Firefox Profiler: JSON with a track for each thread.
//!
//! The weight of a sample is its number of sampling intervals; it also has its CPU time, for the viewer's activity
//! graph. Categories, which the viewer colours, are the kinds of code. CPU time is rounded to microseconds, the unit
//! of the format.
//!
//! Source: firefox-devtools/profiler, `docs-developer/processed-profile-format.md`; the crate
//! `fxprof-processed-profile` writes it.

use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, ProcessHandle,
    Profile as FirefoxProfile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use proto::v1::FrameKind;
use rustc_hash::FxHashMap;

use super::Profiles;
use super::frames::Frames;
use crate::dictionary::frame_parts::kind_text;
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::source::Sample;

/// Writes `profile` to `out`.
pub fn write(profile: &ProcessProfile, mut out: impl Write) -> io::Result<()> {
    let mut file = file_of(&profile.session().subject(), &[profile]);
    Writer::new(profile, &mut file, profile.hello().wall_clock_ns).add_all();
    serde_json::to_writer(&mut out, &file)?;
    out.flush()
}

/// Writes several processes to `out`.
pub fn write_each(profiles: Profiles<'_>, mut out: impl Write) -> Result<(), QueryError> {
    let profiles: Vec<ProcessProfile> = profiles.collect::<Result<_, _>>()?;
    let all: Vec<&ProcessProfile> = profiles.iter().collect();
    let mut file = file_of("several processes", &all);
    let start_ns = start_ns(&all);
    all.iter().for_each(|profile| Writer::new(profile, &mut file, start_ns).add_all());
    serde_json::to_writer(&mut out, &file).map_err(io::Error::from)?;
    Ok(out.flush()?)
}

/// Returns the time to which the times of the file refer.
fn start_ns(profiles: &[&ProcessProfile]) -> u64 {
    profiles.iter().map(|profile| profile.hello().wall_clock_ns).min().unwrap_or(0)
}

fn file_of(product: &str, profiles: &[&ProcessProfile]) -> FirefoxProfile {
    let start = Duration::from_nanos(start_ns(profiles));
    let interval_ns = profiles.first().map_or(1, |profile| profile.hello().interval_ns);
    let interval = SamplingInterval::from_nanos(interval_ns.max(1));
    let mut file =
        FirefoxProfile::new(product, ReferenceTimestamp::from_duration_since_unix_epoch(start), interval);
    file.set_os_name("Linux");
    // The file has all names, so the viewer does not load symbols.
    file.set_symbolicated(true);
    file
}

/// Adds one process to a file.
struct Writer<'p> {
    profile: &'p ProcessProfile,
    file: &'p mut FirefoxProfile,
    start_ns: u64,
    process: ProcessHandle,
    frames: Frames<'p>,
    categories: FxHashMap<FrameKind, CategoryHandle>,
    threads: FxHashMap<u32, ThreadHandle>,
    /// CPU time of each thread that is not a whole interval yet, in nanoseconds.
    rests: FxHashMap<u32, u64>,
    /// Stacks by thread, as in the format.
    stacks: FxHashMap<(u32, u32), Option<StackHandle>>,
}

impl<'p> Writer<'p> {
    fn new(profile: &'p ProcessProfile, file: &'p mut FirefoxProfile, start_ns: u64) -> Self {
        let hello = profile.hello();
        let begin = Timestamp::from_nanos_since_reference(hello.wall_clock_ns.saturating_sub(start_ns));
        let process = file.add_process(&profile.session().subject(), hello.pid, begin);
        Writer {
            profile,
            file,
            start_ns,
            process,
            frames: Frames::new(profile),
            categories: FxHashMap::default(),
            threads: FxHashMap::default(),
            rests: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    fn add_all(mut self) {
        self.profile.samples().iter().for_each(|sample| self.add(sample));
    }

    fn add(&mut self, sample: &Sample) {
        let since_start = sample.time_ns.saturating_sub(self.start_ns);
        let time = Timestamp::from_nanos_since_reference(since_start);
        let thread = self.thread(sample, since_start);
        let stack = self.stack(sample, thread);
        let weight = i32::try_from(self.weight(sample)).unwrap_or(i32::MAX);
        self.file.add_sample(thread, time, stack, CpuDelta::from_nanos(sample.cpu_ns), weight);
        self.file.set_thread_end_time(thread, time);
    }

    /// Returns the CPU time of a sample in whole intervals, with what earlier samples of its thread have left over.
    fn weight(&mut self, sample: &Sample) -> u64 {
        let interval_ns = self.profile.hello().interval_ns;
        if interval_ns == 0 {
            return 1;
        }
        let rest_ns = self.rests.entry(sample.thread).or_default();
        let cpu_ns = rest_ns.saturating_add(sample.cpu_ns);
        *rest_ns = cpu_ns % interval_ns;
        cpu_ns / interval_ns
    }

    fn thread(&mut self, sample: &Sample, since_start: u64) -> ThreadHandle {
        if let Some(&thread) = self.threads.get(&sample.thread) {
            return thread;
        }
        let known = self.profile.thread(sample.thread);
        // The viewer draws CPU time between two samples, so the first sample needs a predecessor.
        let before = Timestamp::from_nanos_since_reference(since_start.saturating_sub(sample.cpu_ns));
        let tid = known.map_or(0, |thread| thread.tid);
        // No thread is marked as main, because the viewer would give it the name of the process.
        let thread = self.file.add_thread(self.process, tid, before, false);
        self.file.set_thread_name(thread, self.profile.thread_name(sample.thread));
        self.file.add_sample(thread, before, None, CpuDelta::ZERO, 0);
        self.threads.insert(sample.thread, thread);
        thread
    }

    fn stack(&mut self, sample: &Sample, thread: ThreadHandle) -> Option<StackHandle> {
        let key = (sample.thread, sample.stack);
        if let Some(&stack) = self.stacks.get(&key) {
            return stack;
        }
        let root_first = self.frames.stack(sample.stack).into_iter().rev();
        let infos: Vec<FrameInfo> = root_first.map(|frame| self.frame(frame)).collect();
        let stack = self.file.intern_stack_frames(thread, infos.into_iter());
        self.stacks.insert(key, stack);
        stack
    }

    fn frame(&mut self, frame: u32) -> FrameInfo {
        let kind = self.frames.all()[frame as usize].kind;
        let file = &mut *self.file;
        let category = *self
            .categories
            .entry(kind)
            .or_insert_with(|| file.add_category(&kind_text(kind).replace('_', " "), color(kind)));
        FrameInfo {
            frame: Frame::Label(file.intern_string(&self.frames.all()[frame as usize].text)),
            category_pair: category.into(),
            flags: FrameFlags::empty(),
        }
    }
}

fn color(kind: FrameKind) -> CategoryColor {
    match kind {
        FrameKind::Interpreted => CategoryColor::Yellow,
        FrameKind::C1 => CategoryColor::LightGreen,
        FrameKind::C2 | FrameKind::Jvmci => CategoryColor::Green,
        FrameKind::Inlined => CategoryColor::LightBlue,
        FrameKind::NativeMethod | FrameKind::Native => CategoryColor::Blue,
        FrameKind::Vm | FrameKind::Stub => CategoryColor::Orange,
        _ => CategoryColor::Gray,
    }
}
