//! The previous walk of each thread, so that only what changed is walked and named.
//!
//! Problem: consecutive samples of a thread share most of their frames, and walking these costs as much as walking new
//! ones.
//! Approach: the copy, the frames and the [`Position`]s of a thread's last whole walk are kept. A later walk compares its
//! copy from the stack base on. At the first position that equals one of the kept, with equal bytes above
//! [`Position::lowest_read`] and the same code in memory, the rest of the kept frames is taken over, and with it
//! the nodes that name them.
//! Invariants: a walk that takes over frames returns the same as a walk in full; only whole, unrestricted walks are kept;
//! the memory is bounded, and what was used least recently is given up first.
//! Decision: `design/frames.md`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;
use stackwalk::{Compilation, Frame, Memory, Position, Stop};

use crate::name::dictionaries::Node;
use crate::walk::snapshot::Snapshot;
use crate::walk::tail_copy::TailCopy;
use crate::walk::vm::Vm;

/// Most bytes of all kept walks.
const MAX_BYTES: usize = 2 << 20;
/// Most bytes of one stack copy that is kept: beyond, a single deep recursion would displace all other threads.
const MAX_COPY: usize = 256 << 10;
/// Walks in a row that share less than a sixteenth of their frames, after which only some are kept.
const MAX_UNLIKE: u8 = 8;
/// Of these, one of so many.
const UNLIKE_KEPT: u8 = 8;
/// Bytes of a stack from which on keeping it costs more than some microseconds.
const LONG: usize = 8 << 10;
/// Bytes that are compared at once before the first difference is searched word by word.
const BLOCK: usize = 512;

/// A position of a kept walk, with what is older than it.
#[derive(Debug, Clone, Copy)]
struct Resumable {
    position: Position,
    /// Number of frames from the root up to the one at this position, which is included.
    frames: u32,
    /// The same for compilations.
    codes: u32,
}

/// Nodes of a kept walk in the dictionary of stacks.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    /// Number of the walk that was named; 0 for none.
    pub walk: u64,
    /// Time stamp of its sample.
    pub ticks: u64,
    /// Versions of the dictionaries and of the list of libraries.
    pub versions: (u64, u64),
    /// The node of each frame, from the root on.
    pub of_frames: Vec<Node>,
}

/// The last whole walk of one thread. All lists begin at the root.
#[derive(Debug)]
struct Kept {
    /// Number of this walk.
    walk: u64,
    /// Time of the last use, by [`PreviousWalks::uses`].
    used: u64,
    /// Walks in a row that shared few frames with this, up to [`MAX_UNLIKE`], and those that were not kept since.
    unlike: u8,
    left_out: u8,
    /// Time stamp of the sample.
    ticks: u64,
    /// Version of the list of libraries.
    libraries: u64,
    surroundings: Surroundings,
    stack: TailCopy,
    frozen: Vec<u8>,
    stop: Stop,
    frames: Vec<Frame>,
    resumables: Vec<Resumable>,
    codes: Vec<Compilation>,
    nodes: Nodes,
}

/// Fields of a snapshot that decide on the walk of older frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Surroundings {
    stack_end: u64,
    stack_high: u64,
    cont_entry: u64,
    virtual_thread: u64,
    is_emptied: bool,
}

/// Frames that a walk took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reused {
    /// Number of the walk they are from.
    pub walk: u64,
    /// Number of frames, from the root on.
    pub frames: usize,
    /// Number of kept positions from the root up to the one that was met.
    resumables: usize,
}

/// The kept walks, by slot.
#[derive(Debug, Default)]
pub struct PreviousWalks {
    kept: HashMap<u32, Kept, BuildHasherDefault<FxHasher>>,
    bytes: usize,
    uses: u64,
    walks: u64,
    /// Frozen frames of the present snapshot, in one piece.
    frozen: Vec<u8>,
}

/// The parts of a walk that are recorded while it goes on, newest first.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Position, number of newer frames, and the index of its compilation in `codes` or of one that is newer.
    positions: Vec<(Position, u32, u32)>,
    codes: Vec<Compilation>,
}

impl Recorder {
    pub(super) fn clear(&mut self) {
        self.positions.clear();
        self.codes.clear();
    }

    pub(super) fn at(&mut self, position: Position, newer_frames: usize) {
        let code = self.codes.len().saturating_sub(1);
        self.positions.push((position, newer_frames as u32, code as u32));
    }

    pub(super) fn code(&mut self, code: Option<Compilation>) {
        if let Some(code) = code.filter(|code| self.codes.last() != Some(code)) {
            self.codes.push(code);
        }
    }
}

/// The kept walk of the thread of a snapshot, as far as the copies are equal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    kept: &'a Kept,
    /// Lowest address from which on the stack bytes are equal.
    equal_from: u64,
    /// Resumable positions that are not below the walk.
    left: usize,
}

impl Candidate<'_> {
    /// Returns the frames that follow at `position`, from the root on, if the walk repeats from there on.
    pub(super) fn frames_at<M: Memory>(
        &mut self,
        position: &Position,
        vm: &Vm<M>,
    ) -> Option<(Reused, &[Frame], Stop)> {
        let Self { kept, equal_from, left } = self;
        while left.checked_sub(1).and_then(|last| kept.resumables.get(last))?.position.sp < position.sp {
            *left -= 1;
        }
        let resumable = kept.resumables.get(*left - 1)?;
        if resumable.position != *position || position.lowest_read() < *equal_from {
            return None;
        }
        let codes = kept.codes.get(..resumable.codes as usize)?;
        if !codes.iter().all(|code| vm.hotspot.is_present(&vm.memory, code)) {
            *left = 0;
            return None;
        }
        let frames = resumable.frames as usize;
        Some((Reused { walk: kept.walk, frames, resumables: *left }, kept.frames.get(..frames)?, kept.stop))
    }
}

impl PreviousWalks {
    /// Returns the kept walk of a slot if it may share frames with `snapshot`; `is_certain` tells for a time stamp whether
    /// everything that was loaded then still is.
    pub(super) fn candidate(
        &mut self,
        slot: u32,
        snapshot: &Snapshot<'_>,
        libraries: u64,
        is_certain: impl FnOnce(u64) -> bool,
    ) -> Option<Candidate<'_>> {
        if !is_suitable(snapshot) {
            return None;
        }
        let Self { kept, uses, frozen, .. } = self;
        let kept = kept.get_mut(&slot)?;
        *uses += 1;
        kept.used = *uses;
        put_frozen(frozen, snapshot);
        let is_same = kept.surroundings == surroundings(snapshot)
            && kept.frozen == *frozen
            && kept.libraries == libraries
            && is_certain(kept.ticks);
        is_same.then(|| {
            let equal = equal_tail(kept.stack.bytes(), snapshot.stack);
            let equal_from = kept.surroundings.stack_end - equal as u64;
            Candidate { kept, equal_from, left: kept.resumables.len() }
        })
    }

    /// Returns whether the next walk of a slot is to be recorded and kept, that of a stack of this size. Where hardly two long
    /// stacks are alike, keeping costs more than the few common frames.
    pub(super) fn is_due(&mut self, slot: u32, stack_bytes: usize) -> bool {
        let is_unlike = |kept: &&mut Kept| kept.unlike == MAX_UNLIKE && stack_bytes >= LONG;
        let Some(kept) = self.kept.get_mut(&slot).filter(is_unlike) else { return true };
        kept.left_out = (kept.left_out + 1) % UNLIKE_KEPT;
        kept.left_out == 0
    }

    /// Notes how many frames of a walk were those of the kept one.
    pub(super) fn note_shared(&mut self, slot: u32, frames: usize, reused: usize) {
        let Some(kept) = self.kept.get_mut(&slot) else { return };
        kept.unlike = if reused < frames.div_ceil(16) { MAX_UNLIKE.min(kept.unlike + 1) } else { 0 };
    }

    /// Keeps a walk, `newest` of whose frames were walked and the rest taken over; returns its number, 0 if it is not kept.
    pub(super) fn keep(
        &mut self,
        slot: u32,
        snapshot: &Snapshot<'_>,
        (ticks, libraries, stop): (u64, u64, Stop),
        (newest, reused): (&[Frame], Option<Reused>),
        recorder: &Recorder,
    ) -> u64 {
        if !is_suitable(snapshot) || !stop.is_complete() {
            return 0;
        }
        put_frozen(&mut self.frozen, snapshot);
        self.walks += 1;
        self.uses += 1;
        let Self { kept, bytes, uses, walks, frozen } = self;
        let entry = kept.entry(slot).or_insert_with(|| Kept::new(surroundings(snapshot), stop));
        *bytes -= entry.bytes();
        let (frames, codes) = entry.truncate(reused);
        (entry.walk, entry.used, entry.ticks, entry.libraries, entry.stop) =
            (*walks, *uses, ticks, libraries, stop);
        entry.surroundings = surroundings(snapshot);
        // Above the position from which frames were taken over, both copies are equal.
        let lowest_same = entry.resumables.last().map(|resumable| resumable.position.lowest_read());
        let same = lowest_same.map_or(0, |lowest| entry.surroundings.stack_end.saturating_sub(lowest));
        entry.stack.replace(snapshot.stack, same as usize);
        entry.frozen.clone_from(frozen);
        entry.frames.extend(newest.iter().rev());
        entry.codes.extend(recorder.codes.iter().rev());
        // Registers decide on the steps from stubs, and gaps depend on the newest frames.
        let is_special = |frame: &Frame| matches!(frame, Frame::Stub { .. } | Frame::Gap { .. });
        let special = newest.iter().rposition(is_special).map_or(0, |last| last + 1);
        let resumables = recorder.positions.iter().rev().filter(|(_, newer, _)| *newer as usize >= special);
        entry.resumables.extend(resumables.map(|&(position, newer, code)| Resumable {
            position,
            frames: frames + (newest.len() as u32).saturating_sub(newer),
            codes: codes + (recorder.codes.len() as u32).saturating_sub(code),
        }));
        *bytes += entry.bytes();
        let walk = entry.walk;
        self.give_up();
        walk
    }

    /// Returns the nodes of the slot's kept walk.
    pub(crate) fn nodes(&mut self, slot: u32) -> Option<&mut Nodes> {
        self.kept.get_mut(&slot).map(|kept| &mut kept.nodes)
    }

    /// Gives up walks until the rest is within the bound; the newest use stays.
    fn give_up(&mut self) {
        while self.bytes > MAX_BYTES && self.kept.len() > 1 {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(slot, _)| *slot);
            let Some(kept) = oldest.and_then(|slot| self.kept.remove(&slot)) else { return };
            self.bytes -= kept.bytes();
        }
    }
}

impl Kept {
    fn new(surroundings: Surroundings, stop: Stop) -> Self {
        Self {
            walk: 0,
            used: 0,
            unlike: 0,
            left_out: 0,
            ticks: 0,
            libraries: 0,
            surroundings,
            stack: TailCopy::default(),
            frozen: Vec::new(),
            stop,
            frames: Vec::new(),
            resumables: Vec::new(),
            codes: Vec::new(),
            nodes: Nodes::default(),
        }
    }

    /// Drops all but what a walk took over; returns how many frames and compilations remain.
    fn truncate(&mut self, reused: Option<Reused>) -> (u32, u32) {
        self.resumables.truncate(reused.map_or(0, |reused| reused.resumables));
        self.frames.truncate(reused.map_or(0, |reused| reused.frames));
        let codes = self.resumables.last().map_or(0, |last| last.codes);
        self.codes.truncate(codes as usize);
        (self.frames.len() as u32, codes)
    }

    fn bytes(&self) -> usize {
        self.stack.capacity()
            + self.frozen.capacity()
            + self.frames.capacity() * size_of::<Frame>()
            + self.resumables.capacity() * size_of::<Resumable>()
            + self.codes.capacity() * size_of::<Compilation>()
            // The nodes come with the names, one for each frame.
            + self.frames.capacity() * size_of::<Node>()
    }
}

/// Returns whether frames may be taken over into the walk of this snapshot, and from it.
fn is_suitable(snapshot: &Snapshot<'_>) -> bool {
    let capture = &snapshot.head.capture;
    capture.thread != 0 && capture.deoptimized_pc == 0 && snapshot.is_copy && snapshot.stack.len() <= MAX_COPY
}

fn surroundings(snapshot: &Snapshot<'_>) -> Surroundings {
    let capture = &snapshot.head.capture;
    Surroundings {
        stack_end: capture.stack_low.saturating_add(snapshot.stack.len() as u64),
        stack_high: capture.stack_high,
        cont_entry: capture.cont_entry,
        virtual_thread: snapshot.head.virtual_thread,
        is_emptied: snapshot.head.emptied != 0,
    }
}

/// Fills `frozen` with the copies of frozen frames and their addresses.
fn put_frozen(frozen: &mut Vec<u8>, snapshot: &Snapshot<'_>) {
    frozen.clear();
    frozen.push(snapshot.head.frozen_extent);
    for chunk in (0..).map_while(|index| snapshot.frozen.chunk(index)) {
        frozen.extend_from_slice(&chunk.base().to_ne_bytes());
        frozen.extend_from_slice(&chunk.end().to_ne_bytes());
        frozen.extend_from_slice(chunk.all());
    }
}

/// Returns the number of equal bytes at the ends of two copies, at least in whole words.
fn equal_tail(one: &[u8], other: &[u8]) -> usize {
    let (mut ones, mut others) = (one.rchunks_exact(BLOCK), other.rchunks_exact(BLOCK));
    let blocks = ones.by_ref().zip(others.by_ref()).take_while(|(one, other)| one == other).count();
    let rest = |bytes: &'_ [u8]| bytes.len() - blocks * BLOCK;
    let (one, other) =
        (one.get(..rest(one)).unwrap_or_default(), other.get(..rest(other)).unwrap_or_default());
    let words =
        one.rchunks_exact(8).zip(other.rchunks_exact(8)).take_while(|(one, other)| one == other).count();
    blocks * BLOCK + words * 8
}
