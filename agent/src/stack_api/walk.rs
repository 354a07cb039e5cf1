//! One walk of a live stack.
//!
//! Approach: the [`Walker`] for copies runs over a slice that is the stack itself. The memo that the walk has taken
//! holds decoded code, the walker and its frames.
//! Invariant: the frames are dropped before the memo is given back.

use core::sync::atomic::{AtomicU64, Ordering};

use stackwalk::{Frame, Frames, Frozen, Limits, LiveMemory, Memory, Method, Stop, Walker};

use super::api::Api;
use super::memos::{Room, Taken};
use super::subject::Subject;
use crate::handler::ucontext::load;
use crate::jvmti::vm_memory;

/// No limit: the stack bounds a walk, and the client the number of frames.
const LIMITS: Limits = Limits { max_frames: u32::MAX };

/// The golden ratio times 2^64 spreads neighbouring addresses.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Last release whose jmethodIDs are addresses.
pub(super) const LAST_WITH_ADDRESSES: u32 = 25;

/// Number of checked reads when the ends of the code heaps were last read. While it stays the same, no walk has met
/// code beyond them. Relaxed: a hint.
static REFRESHED_AT: AtomicU64 = AtomicU64::new(u64::MAX);

pub struct LiveWalk {
    api: &'static Api,
    native: Native,
    memo: Taken,
}

/// The native frames that a walk follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Native {
    None,
    UntilJava,
    All,
}

/// # Signal Safe Methods
impl LiveWalk {
    /// A walk of `subject`, native frames included if they are `wanted`; `None` if all memos are taken.
    pub fn new(api: &'static Api, subject: &Subject, wanted: bool) -> Option<Self> {
        let memo = api.memos.take()?;
        // Code heaps grow while a program warms up, and each word of code beyond the known end costs a system call.
        let checked = api.memory.checked_reads();
        if REFRESHED_AT.swap(checked, Ordering::Relaxed) != checked {
            vm_memory::add_code_heaps(api.memory, &api.hotspot);
        }
        // Without an anchor the newest Java frame may lie below native ones, even if the pc is in a generated routine
        // that the VM calls (`flush_icache_stub`).
        let native = match (wanted, subject.capture.anchor_sp) {
            (true, _) => Native::All,
            (false, 0) => Native::UntilJava,
            (false, _) => Native::None,
        };
        let walk = Self { api, native, memo };
        let room = walk.room();
        // SAFETY: this walk has taken the memo.
        unsafe { (*room).capture = subject.capture };
        // SAFETY: this walk has taken the memo.
        unsafe { (*room).stack = subject.stack };
        Some(walk)
    }

    fn room(&self) -> *mut Room {
        // SAFETY: the parts live as long as the process.
        unsafe { &raw mut (*self.memo.parts()).room }
    }

    /// Goes to the first frame. To be called before [`LiveWalk::next_frame`], and to walk once more.
    pub fn begin(&mut self) {
        let (parts, room) = (self.memo.parts(), self.room());
        // SAFETY: this walk has taken the memo. Former frames, which refer to other parts, are dropped first.
        let room = unsafe { &mut *room };
        room.frames = None;
        // SAFETY: this walk has taken the memo, and nothing refers to the cache any more.
        let cache = unsafe { &mut (*parts).cache };
        let mut walker = Walker::new(&self.api.hotspot, self.api.memory, cache, LIMITS);
        if self.native != Native::None {
            // SAFETY: this walk has taken the memo.
            let rows = unsafe { &mut (*parts).rows };
            // SAFETY: a list is freed only after every memo that was taken before its replacement was given back.
            let tables = unsafe { &*self.api.libraries.load(Ordering::SeqCst) };
            let view = core::ptr::from_mut(room.view.write(rows.reading(tables, self.api.memory)));
            // SAFETY: memos are never moved, and this is the only reference to the view.
            let view = unsafe { &mut *view };
            walker = match self.native {
                Native::All => walker.with_native(view),
                _ => walker.with_native_until_java(view),
            };
        }
        let walker = core::ptr::from_mut(room.walker.write(walker));
        // SAFETY: memos are never moved, and this is the only reference to the walker.
        let walker = unsafe { &mut *walker };
        walker.frames_in(&mut room.frames, &room.capture, room.stack, Frozen::NONE);
    }

    fn frames(&mut self) -> Option<&mut Frames<'static, LiveMemory>> {
        let room = self.room();
        // SAFETY: this walk has taken the memo, and is borrowed as long as the frames are.
        unsafe { (*room).frames.as_mut() }
    }

    #[inline]
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames()?.next()
    }

    /// Returns the jmethodID of the method of a frame, 0 if the VM has made none.
    ///
    /// Up to JDK 25 an id is the address of a word with the method, which the VM clears when the class is unloaded and
    /// never frees (`JNIMethodBlock` and `clear_jmethod_ids` in `oops/method.cpp`). After one checked read, a known id
    /// is verified by a plain load.
    pub fn id_of(&mut self, method: Method) -> u64 {
        let (hotspot, memory) = (&self.api.hotspot, self.api.memory);
        // SAFETY: this walk has taken the memo; its frames refer to other parts.
        let ids = unsafe { &mut *(*self.memo.parts()).ids };
        let set = ((method.0 >> 3).wrapping_mul(GOLDEN) >> 32) as usize;
        let set = set.checked_rem(ids.len()).and_then(|set| ids.get_mut(set));
        let Some(set) = set.map(|set| set.as_chunks_mut::<2>().0) else { return 0 };
        if let Some(&[_, id]) = set.iter().find(|&&[known, _]| known == method.0) {
            // SAFETY: the word of a jmethodID, which is never freed.
            let holds: u64 = unsafe { load(id, 0) };
            if holds == method.0 {
                return id;
            }
        }
        let Some(id) = hotspot.method_id(memory, method) else { return 0 };
        if hotspot.jdk_major() <= LAST_WITH_ADDRESSES && memory.read_u64(id) == Ok(method.0) {
            set.rotate_right(1);
            if let Some(first) = set.first_mut() {
                *first = [method.0, id];
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
