//! Memory for walks: decoded code and unwind rules, one set for each concurrent walk.
//!
//! Problem: a handler must neither allocate nor wait, and two walks must not share a cache.
//! Approach: a fixed number of memos, made before the first walk. A walk takes the first free one by an exchange, so
//! the first ones stay warm. If all are taken, the walk is refused.
//! Invariant: a taken memo has one user. Unused pages of a memo take no memory.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use sampler_thread::native::in_handler::{Rows, RowsView};
use stackwalk::{Capture, Frames, LiveMemory, ScopeCache, Walker};

pub struct Memos(pub &'static [Memo]);

pub struct Memo {
    /// SeqCst when taken, Release when given back.
    taken: AtomicBool,
    parts: UnsafeCell<Parts>,
}

pub struct Parts {
    /// Decoded code.
    pub cache: ScopeCache,
    /// Unwind rules of native code.
    pub rows: Rows,
    /// jmethodIDs that were found.
    pub ids: &'static mut [IdSet],
    /// The walk itself.
    pub room: Room,
}

/// The parts of a walk, too large for the stack of a signal handler. Those after `stack` refer to other parts.
pub struct Room {
    /// Registers and fields of the VM.
    pub capture: Capture,
    pub stack: &'static [u8],
    /// Unwind rules, as the walker uses them.
    pub view: MaybeUninit<RowsView<'static, LiveMemory>>,
    pub walker: MaybeUninit<Walker<'static, LiveMemory>>,
    pub frames: Option<Frames<'static, LiveMemory>>,
}

/// Four methods with their jmethodIDs, zeros for none, so that methods which call each other do not displace one
/// another.
pub type IdSet = [u64; 8];

// SAFETY: only the walk that has taken the memo uses the parts.
unsafe impl Sync for Memo {}

impl Memo {
    /// An empty memo, with all memory that it will ever need.
    pub fn new(ids: &'static mut [IdSet]) -> Self {
        let room = Room {
            capture: Capture::ZERO,
            stack: &[],
            view: MaybeUninit::uninit(),
            walker: MaybeUninit::uninit(),
            frames: None,
        };
        let parts = Parts { cache: ScopeCache::new(), rows: Rows::default(), ids, room };
        Self { taken: AtomicBool::new(false), parts: UnsafeCell::new(parts) }
    }
}

/// # Signal Safe Methods
impl Memos {
    /// Takes a memo; `None` if all are taken.
    pub fn take(&self) -> Option<Taken> {
        let memo = self.0.iter().find(|memo| {
            let taken = &memo.taken;
            taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        });
        memo.map(Taken)
    }

    /// Returns whether each memo is free at this moment.
    pub fn free(&self) -> impl Iterator<Item = bool> + '_ {
        self.0.iter().map(|memo| !memo.taken.load(Ordering::SeqCst))
    }
}

/// A taken memo, given back on drop.
pub struct Taken(&'static Memo);

/// # Signal Safe Methods
impl Taken {
    /// The parts; the caller must not use two references to one of them at a time.
    pub fn parts(&self) -> *mut Parts {
        self.0.parts.get()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
