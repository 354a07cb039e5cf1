//! JFR: a flight recording for JDK Mission Control, the `jfr` tool and other readers.
//!
//! Samples become `jdk.ExecutionSample` events, which every reader finds. An option writes `jdk.CPUTimeSample` events
//! instead, whose sampling period is the CPU time of the sample; few readers of 2026 find those. A file never has both,
//! because readers of both would count each sample twice. Losses become `jdk.CPUTimeSamplesLost`, one event per thread
//! at the end. The JVM has no event for wall time: a profile of it has `jdk.ExecutionSample` events, and the account
//! says that they are of wall time.
//! A file is a sequence of chunks, each with its own types and constants. Chunks are built in memory and written one by
//! one.
//!
//! Sources: JDK 25, `jdk.jfr` (`jdk.jfr.internal.consumer`: `ChunkHeader`, `ChunkParser`, `MetadataReader`); the
//! format has no specification, so the readers are the reference.

mod encode;
mod metadata;
mod pools;

use std::io::{self, Write};

use proto::ThreadState;
use proto::v1::Lost;

use self::encode::Bytes;
use self::metadata::{Id, metadata};
use self::pools::Pools;
use super::comments::comments;
use super::frames::Frames;
use super::{Options, Profiles};
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::session::mode::Mode;
use crate::source::Sample;

/// Bytes of events after which a chunk is written; the JVM's own limit is 12 MB.
const CHUNK_BYTES: usize = 8 << 20;
/// Maximum number of events for samples that the agent merged into one; it bounds the file whatever a recording claims.
/// Usually samples of one second are merged: at most 1,000 at the shortest interval of the kernel's timers.
const EVENTS_OF_A_MERGED_SAMPLE: u64 = 1_000;
const HEADER_BYTES: u64 = 68;
const METADATA_EVENT: u64 = 0;
const CHECKPOINT_EVENT: u64 = 1;

/// Writes `profile` to `out`.
pub fn write(profile: &ProcessProfile, options: Options, mut out: impl Write) -> io::Result<()> {
    write_chunks(profile, options, &mut out)?;
    out.flush()
}

/// Writes several processes: chunks of one after chunks of the other.
pub fn write_each(profiles: Profiles<'_>, options: Options, mut out: impl Write) -> Result<(), QueryError> {
    for profile in profiles {
        write_chunks(&profile?, options, &mut out)?;
    }
    Ok(out.flush()?)
}

fn write_chunks(profile: &ProcessProfile, options: Options, out: &mut impl Write) -> io::Result<()> {
    let mut frames = Frames::new(profile);
    let mut chunk = Chunk::new(profile);
    for sample in profile.samples() {
        chunk.sample(&mut frames, sample, options);
        if chunk.events.len() >= CHUNK_BYTES {
            chunk.write(out)?;
            chunk = Chunk::new(profile);
        }
    }
    // Losses are only known for the whole session.
    if !profile.is_part() && profile.session().mode() != Mode::Wall {
        chunk.losses();
    }
    chunk.write(out)
}

/// Returns whether samples are `jdk.ExecutionSample` events.
fn has_execution_samples(mode: Mode, options: Options) -> bool {
    !options.cpu_time_samples || mode == Mode::Wall
}

/// One chunk. Ticks are nanoseconds of the recorded machine's monotonic clock.
struct Chunk<'p> {
    profile: &'p ProcessProfile,
    pools: Pools,
    events: Bytes,
    /// Ticks of the first and the last sample.
    span: Option<(u64, u64)>,
}

impl<'p> Chunk<'p> {
    fn new(profile: &'p ProcessProfile) -> Self {
        Chunk { profile, pools: Pools::default(), events: Bytes::default(), span: None }
    }

    fn sample(&mut self, frames: &mut Frames, sample: &Sample, options: Options) {
        let (hello, mode) = (self.profile.hello(), self.profile.session().mode());
        let ticks = hello.monotonic_ns.wrapping_add(sample.time_ns.wrapping_sub(hello.wall_clock_ns));
        let (first, last) = self.span.unwrap_or((ticks, ticks));
        self.span = Some((first.min(ticks), last.max(ticks)));
        let thread = self.pools.thread(self.profile, sample.thread);
        let stack = self.pools.stack(frames, sample.stack);
        // Readers count events, so each of several merged samples becomes an event, and so does each interval of wall
        // time, whose period is longer than the interval while many threads share the rate.
        let intervals = match mode {
            Mode::Wall => (sample.cpu_ns + hello.interval_ns / 2).checked_div(hello.interval_ns).unwrap_or(0),
            _ => 0,
        };
        let count = u64::from(sample.count).max(intervals).clamp(1, EVENTS_OF_A_MERGED_SAMPLE);
        let mut rest_ns = sample.cpu_ns % count;
        for _ in 0..count {
            let period_ns = sample.cpu_ns / count + std::mem::take(&mut rest_ns);
            if !has_execution_samples(mode, options) {
                let mut fields = Bytes::default();
                fields.number(ticks);
                fields.number(stack);
                fields.number(thread);
                fields.boolean(self.profile.is_failed(sample.stack));
                fields.number(period_ns);
                // In other modes, stacks are taken where the tick interrupted the thread.
                fields.boolean(mode == Mode::Jvmti);
                self.events.event(Id::CpuTimeSample as u64, &fields);
            } else {
                let mut fields = Bytes::default();
                fields.number(ticks);
                fields.number(thread);
                fields.number(stack);
                let (_, state) = ThreadState::split(self.profile.root_of(sample.stack));
                fields.number(self.pools.state(mode, state));
                self.events.event(Id::ExecutionSample as u64, &fields);
            }
        }
    }

    /// Appends one event for each thread that lost samples, and one for losses without a thread.
    fn losses(&mut self) {
        let profile = self.profile;
        let count = |lost: &[Lost]| lost.iter().fold(0, |sum: u64, lost| sum.saturating_add(lost.count));
        let mut of_threads = 0u64;
        let session = profile.session();
        let mut accounts: Vec<_> = session.accounts().collect();
        accounts.sort_unstable_by_key(|account| account.thread);
        for account in accounts {
            let lost = count(&account.lost);
            if lost > 0 {
                of_threads = of_threads.saturating_add(lost);
                let thread = self.pools.thread(profile, account.thread);
                self.lost(lost, thread);
            }
        }
        let all = profile.session().statistics.as_ref().map_or(0, |statistics| count(&statistics.lost));
        if all > of_threads {
            self.lost(all - of_threads, 0);
        }
    }

    fn lost(&mut self, count: u64, thread: u64) {
        let mut fields = Bytes::default();
        fields.number(self.span().1);
        fields.number(count);
        fields.number(thread);
        self.events.event(Id::CpuTimeSamplesLost as u64, &fields);
    }

    /// Returns the first and last ticks, or those of the session's start without samples.
    fn span(&self) -> (u64, u64) {
        let start = self.profile.hello().monotonic_ns;
        self.span.unwrap_or((start, start))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (first, last) = self.span();
        let mut body = Bytes::default();
        body.event(METADATA_EVENT, &metadata(first));
        let checkpoint_at = HEADER_BYTES + body.len() as u64;
        body.event(CHECKPOINT_EVENT, &self.pools.checkpoint(first));
        self.information(first, last, &mut body);
        let size = HEADER_BYTES + (body.len() + self.events.len()) as u64;
        let hello = self.profile.hello();
        let start_ns = hello.wall_clock_ns.wrapping_add(first.wrapping_sub(hello.monotonic_ns));
        out.write_all(b"FLR\0")?;
        out.write_all(&2u16.to_be_bytes())?; // version 2.0
        out.write_all(&0u16.to_be_bytes())?;
        // Readers treat a chunk with duration 0 as unfinished.
        let duration_ns = (last - first).max(1);
        for number in [
            size,
            checkpoint_at,
            HEADER_BYTES,
            start_ns,
            duration_ns,
            first,
            /* ticks a second */ 1_000_000_000,
        ] {
            out.write_all(&number.to_be_bytes())?;
        }
        out.write_all(&1u32.to_be_bytes())?; // numbers are of variable length
        out.write_all(body.as_slice())?;
        out.write_all(self.events.as_slice())
    }

    /// Appends the events that describe the recording; like the JVM's, each chunk has them.
    fn information(&self, first: u64, last: u64, out: &mut Bytes) {
        let hello = self.profile.hello();
        let present = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut emit = |class: Id, rest: &dyn Fn(&mut Bytes)| {
            let mut fields = Bytes::default();
            fields.number(first);
            rest(&mut fields);
            out.event(class as u64, &fields);
        };
        emit(Id::ActiveRecording, &|fields| {
            fields.number(1);
            fields.string(Some(self.profile.session().service()));
            fields.number(hello.wall_clock_ns / 1_000_000);
            fields.number((last - first) / 1_000_000);
        });
        emit(Id::JvmInformation, &|fields| {
            fields.string(present(&hello.jvm_name).as_deref());
            fields.string(present(&hello.jvm_version).as_deref());
            fields.string(present(&hello.command).as_deref());
            fields.number(u64::from(hello.pid));
        });
        emit(Id::OsInformation, &|fields| fields.string(Some("Linux")));
        for comment in comments(self.profile) {
            emit(Id::Account, &|fields| fields.string(Some(&comment)));
        }
    }
}
