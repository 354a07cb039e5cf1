//! One walk of a live stack.
//!
//! Approach: the same [`Walker`] as for copies, over a slice that is the stack itself; decoded code comes from the memo that
//! the walk has taken.
//! Invariant: the memo holds everything that a walk refers to, its walker and its frames included; the frames are dropped
//! before the memo is given back.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::Ordering;

use stackwalk::{Frame, Frames, Frozen, Limits, LiveMemory, Memory, Method, Stop, Walker};

use super::api::Api;
use super::memos::{KnownId, Room, Taken};
use super::subject::Subject;
use crate::jvmti::vm_memory;
use crate::signal::ucontext::load;

/// The stack bounds a walk; its user bounds the frames.
const LIMITS: Limits = Limits { max_frames: u32::MAX };

/// The golden ratio times 2^64 spreads neighbouring addresses.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// jmethodIDs that may be at one place: a cache line. Two methods that call each other must not displace one another.
const IDS_OF_SET: usize = 4;

/// Last release whose jmethodIDs are addresses.
pub(super) const LAST_WITH_ADDRESSES: u32 = 25;

/// A walk in progress.
pub struct LiveWalk {
    api: &'static Api,
    follows_native: bool,
    memo: Taken,
}

/// # Signal Safe Methods
impl LiveWalk {
    /// A walk of `subject`, native frames included if they are `wanted`; `None` if all memos are taken.
    pub fn new(api: &'static Api, subject: &Subject, wanted: bool) -> Option<Self> {
        let memo = api.memos.take()?;
        // Code heaps grow while a program warms up, and code beyond the known end would cost a system call for each word.
        // Their ends are loaded directly themselves.
        vm_memory::add_code_heaps(api.memory, &api.hotspot);
        // Without an anchor, Java frames lie below the native ones.
        let capture = &subject.capture;
        let starts_native = capture.anchor_sp == 0 && !api.hotspot.is_code(capture.pc);
        let walk = Self { api, follows_native: wanted || starts_native, memo };
        let room = walk.room();
        // SAFETY: this walk has taken the memo.
        unsafe { (*room).capture = subject.capture };
        // SAFETY: as above.
        unsafe { (*room).stack = subject.stack };
        Some(walk)
    }

    fn room(&self) -> *mut Room {
        // SAFETY: the parts live as long as the process.
        unsafe { &raw mut (*self.memo.parts()).room }
    }

    /// Goes to the first frame; must be called before [`LiveWalk::next_frame`], again to walk once more.
    pub fn begin(&mut self) {
        let (parts, room) = (self.memo.parts(), self.room());
        // SAFETY: this walk has taken the memo. The frames of an earlier beginning refer to other parts, and go first.
        let room = unsafe { &mut *room };
        room.frames = None;
        // SAFETY: as above; nothing refers to the cache any more.
        let cache = unsafe { &mut (*parts).cache };
        let mut walker = Walker::new(&self.api.hotspot, self.api.memory, cache, LIMITS);
        if self.follows_native {
            // SAFETY: as above.
            let rows = unsafe { &mut (*parts).rows };
            // SAFETY: a list is freed only after every memo that was taken before its replacement was given back.
            let tables = unsafe { &*self.api.libraries.load(Ordering::SeqCst) };
            let view = core::ptr::from_mut(room.view.write(rows.reading(tables, self.api.memory)));
            // SAFETY: memos are never moved, and this is the only reference to the view.
            walker = walker.with_native(unsafe { &mut *view });
        }
        let walker = core::ptr::from_mut(room.walker.write(walker));
        // SAFETY: as above.
        let walker = unsafe { &mut *walker };
        walker.frames_in(&mut room.frames, &room.capture, room.stack, Frozen::NONE);
    }

    fn frames(&mut self) -> Option<&mut Frames<'static, LiveMemory>> {
        let room = self.room();
        // SAFETY: this walk has taken the memo, and is borrowed as long as the frames are.
        unsafe { (*room).frames.as_mut() }
    }

    /// Returns the next frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames()?.next()
    }

    /// Returns the jmethodID of the method of a frame, 0 if the VM has made none.
    ///
    /// An id that was found before is right if the word at its address still holds the method: the VM clears it when the
    /// class is unloaded. It never frees such words (`JNIMethodBlock` and `clear_jmethod_ids` in `oops/method.cpp`, JDK 11 to
    /// 25), so one that a checked read has shown to be the id's is loaded directly from then on. Later ids are no addresses.
    pub fn id_of(&mut self, method: Method) -> u64 {
        let (hotspot, memory) = (&self.api.hotspot, self.api.memory);
        // SAFETY: this walk has taken the memo; its frames refer to other parts.
        let ids = unsafe { &mut *(*self.memo.parts()).ids };
        let set = ((method.0 >> 3).wrapping_mul(GOLDEN) >> 32) as usize;
        let (sets, _) = ids.as_chunks_mut::<IDS_OF_SET>();
        let set = set.checked_rem(sets.len()).and_then(|set| sets.get_mut(set));
        let Some(set) = set else { return 0 };
        if let Some(known) = set.iter().find(|known| known.method == method.0) {
            // SAFETY: the word of a jmethodID, which is never freed.
            let holds: u64 = unsafe { load(known.id, 0) };
            if holds == method.0 {
                return known.id;
            }
        }
        let Some(id) = hotspot.method_id(memory, method) else { return 0 };
        if hotspot.jdk_major() <= LAST_WITH_ADDRESSES && memory.read_u64(id) == Ok(method.0) {
            set.rotate_right(1);
            if let Some(first) = set.first_mut() {
                *first = KnownId { method: method.0, id };
            }
        }
        id
    }

    /// Returns why there was no next frame.
    pub fn stop(&mut self) -> Stop {
        self.frames().map_or(Stop::NotStarted, |frames| frames.stop())
    }
}

impl Drop for LiveWalk {
    fn drop(&mut self) {
        let room = self.room();
        // SAFETY: this walk still has the memo.
        unsafe { (*room).frames = None };
    }
}
