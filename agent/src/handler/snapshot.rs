//! Writes a snapshot into a slab: head, stack bytes, frozen frames, name of a virtual thread.
//!
//! Invariant: every byte up to the returned length is written, padding included.

use sampler_thread::walk::snapshot::SnapshotHead;
use stackwalk::Capture;

use super::mounted::MountedThread;
use super::ucontext::copy_padded;

pub use sampler_thread::walk::snapshot::{HEAD_BYTES, padded};

/// The capture of one run of the handler.
pub struct Snapshot {
    /// Registers and thread state.
    pub capture: Capture,
    /// Address of the method that the thread compiles, 0 for none.
    pub compiled_method: u64,
    /// Cycles of the thread's previous run of the handler.
    pub previous_cycles: u64,
    /// Bytes to copy from `capture.stack_low` on.
    pub stack_bytes: usize,
    pub mounted: MountedThread,
}

impl Snapshot {
    /// Writes it and returns its length.
    ///
    /// # Safety
    /// `to` is aligned to 64 and writable for the head, the padded stack bytes and the parts of `mounted`; the stack
    /// bytes are readable; `mounted` was found in this run of the handler.
    pub unsafe fn write(&self, to: *mut u8) -> usize {
        let Self { capture, compiled_method, previous_cycles, stack_bytes, mounted } = *self;
        let stack = to.wrapping_add(HEAD_BYTES);
        // SAFETY: the stack bytes are readable, and the slab has room for them.
        unsafe { copy_padded(capture.stack_low as *const u8, stack, stack_bytes) };
        let length = HEAD_BYTES.saturating_add(padded(stack_bytes));
        // SAFETY: found in this run; the slab has room behind the stack bytes.
        let mounted = unsafe { mounted.copy(to.wrapping_add(length)) };
        let MountedThread { thread_id, name, frozen, .. } = mounted;
        let head = SnapshotHead {
            capture,
            compiled_method,
            previous_cycles,
            stack_bytes: stack_bytes as u64,
            virtual_thread: thread_id,
            chunks: frozen.chunks,
            emptied: u8::from(frozen.emptied),
            frozen_extent: frozen.extent as u8,
            name_coder: name.map_or(0, |name| name.coder),
            name_bytes: name.map_or(0, |name| name.bytes as u32),
        };
        // SAFETY: the slab begins with room for the head.
        unsafe { to.cast::<SnapshotHead>().write(head) };
        length.saturating_add(mounted.bytes())
    }
}
