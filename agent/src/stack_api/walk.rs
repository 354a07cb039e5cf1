//! One walk of a live stack.
//!
//! Approach: the same [`Walker`] as for copies, over a slice that is the stack itself; decoded code comes from the memo that
//! the walk has taken.
//! Invariant: [`LiveWalk::begin`] makes references into the walk itself, so it is not moved afterwards, and the frames of an
//! earlier beginning are dropped first.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use sampler_thread::walk::native::in_handler::RowsView;
use stackwalk::{Frame, Frames, Limits, LiveMemory, Memory, Method, Stop, Walker};

use super::api::Api;
use super::memos::{KnownId, Taken};
use super::subject::Subject;
use crate::jvmti::vm_memory;

/// The stack bounds a walk; its user bounds the frames.
const LIMITS: Limits = Limits { max_frames: u32::MAX };

/// The golden ratio times 2^64 spreads neighbouring addresses.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A walk in progress.
pub struct LiveWalk {
    api: &'static Api,
    subject: Subject,
    follows_native: bool,
    frames: Option<Frames<'static, LiveMemory>>,
    walker: MaybeUninit<Walker<'static, LiveMemory>>,
    view: MaybeUninit<RowsView<'static, LiveMemory>>,
    // Dropped last: everything above refers to its parts.
    memo: Taken,
}

/// # Signal Safe Methods
impl LiveWalk {
    /// A walk of `subject`, native frames included if they are `wanted`; `None` if all memos are taken.
    pub fn new(api: &'static Api, subject: Subject, wanted: bool) -> Option<Self> {
        let mut memo = api.memos.take()?;
        if memo.is_refresh_due() {
            vm_memory::add_code_heaps(api.memory, &api.hotspot);
        }
        // Without an anchor, Java frames lie below the native ones.
        let capture = &subject.capture;
        let starts_native = capture.anchor_sp == 0 && !api.hotspot.is_code(capture.pc);
        let follows_native = wanted || starts_native;
        let (walker, view) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        Some(Self { api, subject, follows_native, frames: None, walker, view, memo })
    }

    /// Goes to the first frame; must be called before [`LiveWalk::next_frame`], again to walk once more. The walk must not be
    /// moved afterwards.
    pub fn begin(&mut self) {
        self.frames = None;
        let parts = self.memo.parts();
        // SAFETY: this walk has taken the memo, and the frames that referred to its parts are dropped.
        let cache = unsafe { &mut (*parts).cache };
        let mut walker = Walker::new(&self.api.hotspot, self.api.memory, cache, LIMITS);
        if self.follows_native {
            // SAFETY: as above; another part.
            let rows = unsafe { &mut (*parts).rows };
            // SAFETY: a list is freed only after every memo that was taken before its replacement was given back.
            let tables = unsafe { &*self.api.libraries.load(Ordering::SeqCst) };
            let view = core::ptr::from_mut(self.view.write(rows.reading(tables, self.api.memory)));
            // SAFETY: the walk is not moved from here on, and this is the only reference to its view.
            walker = walker.with_native(unsafe { &mut *view });
        }
        let walker = core::ptr::from_mut(self.walker.write(walker));
        // SAFETY: as above.
        let walker = unsafe { &mut *walker };
        self.frames = Some(walker.frames(&self.subject.capture, self.subject.stack));
    }

    /// Returns the next frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames.as_mut()?.next()
    }

    /// Returns the jmethodID of the method of a frame, 0 if the VM has made none.
    ///
    /// An id that was found before is right if the word at its address still holds the method: the VM clears it when the
    /// class is unloaded.
    pub fn id_of(&mut self, method: Method) -> u64 {
        let (hotspot, memory) = (&self.api.hotspot, self.api.memory);
        // SAFETY: this walk has taken the memo; its frames refer to other parts.
        let ids = unsafe { &mut *(*self.memo.parts()).ids };
        let slots = ids.len() as u64;
        let slot = (method.0 >> 3).wrapping_mul(GOLDEN) >> 32;
        let slot = slot.checked_rem(slots).and_then(|slot| ids.get_mut(slot as usize));
        let known = slot.as_ref().map_or(0, |known| if known.method == method.0 { known.id } else { 0 });
        if known != 0 && memory.read_u64(known) == Ok(method.0) {
            return known;
        }
        let Some(id) = hotspot.method_id(memory, method) else { return 0 };
        if let Some(slot) = slot {
            *slot = KnownId { method: method.0, id };
        }
        id
    }

    /// Returns why there was no next frame.
    pub fn stop(&self) -> Stop {
        self.frames.as_ref().map_or(Stop::NotStarted, Frames::stop)
    }

    /// The stack that is walked.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}
