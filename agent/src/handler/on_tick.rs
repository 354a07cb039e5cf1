//! The signal handler, which runs on a profiled thread at each expiration of its timer.
//!
//! Problem: it interrupts arbitrary code, inside the VM, malloc or another handler.
//! Approach: a fixed sequence on memory made before the first tick: the draw, which skips most signals if the interval
//! is longer than the tick; then registers, `JavaThread` fields, stack bytes into a slab, the request into the queue.
//! No locked instruction follows the copy, because it would wait for the copy to leave the store buffer.
//! Invariant: no allocation, lock, logging or panic, and no system call but those of [`super::heap`]; errno is kept.
//! The functions of `queue` cannot allocate or lock by construction (`no_std`, no `alloc`).

use core::sync::atomic::Ordering;

use libc::{c_int, c_void, siginfo_t};
use queue::{LostCause, Request, RequestFlags};

use super::errno::KeptErrno;
use super::expiration::{Claimed, Expiration};
use super::snapshot::{HEAD_BYTES, Snapshot, padded};
use super::{mounted, own_stack, ucontext};
use crate::handler::slots::{self, Shared};

/// Cache lines of the handler's code (2.5 KB in release builds), which each sample needs.
const CODE_LINES: usize = 40;

/// Entry point, installed with SA_SIGINFO; the kernel blocks the signal meanwhile, so it never nests on a thread.
///
/// # Safety
/// Called by the kernel only.
pub unsafe extern "C" fn on_tick(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let start = ucontext::cycles();
    let _errno = KeptErrno::new();
    let Some(shared) = slots::shared() else { return };
    ucontext::prefetch(core::ptr::from_ref(shared).cast(), Shared::LINES);
    // SAFETY: the kernel passes a valid siginfo.
    match unsafe { Expiration::of(shared, info) } {
        // SAFETY: the context is the kernel's.
        Some(expiration) => unsafe { expired(shared, &expiration, start, context) },
        // SAFETY: the kernel passes a valid siginfo.
        None if unsafe { Expiration::is_of_former(shared, info) } => (),
        // SAFETY: the arguments are those the kernel passed.
        None => unsafe { shared.forward(signal, info, context) },
    }
}

/// Takes a sample of the running thread if this expiration is drawn, and repeats a system call that the signal ended.
///
/// # Safety
/// The context is the kernel's.
#[inline(always)]
unsafe fn expired(shared: &'static Shared, expiration: &Expiration, start: u64, context: *mut c_void) {
    let slot = expiration.slot;
    slot.busy.store(true, Ordering::Relaxed);
    if let Some(claimed) = expiration.claim(shared) {
        ucontext::prefetch(on_tick as *const c_void, CODE_LINES);
        let ticks = shared.time_stamp(start);
        // SAFETY: the slot belongs to the interrupted thread, the context is the kernel's.
        unsafe { sample(shared, expiration, &claimed, ticks, context) };
        let cycles = ucontext::cycles().wrapping_sub(start);
        slot.last_cycles.store(cycles, Ordering::Relaxed);
        // SAFETY: this is the handler, on the thread of the slot.
        unsafe { crate::hooks::captured(expiration.index, &slot.java_thread, ticks, cycles, context) };
    }
    // SAFETY: the context is the kernel's.
    unsafe { ucontext::repeat_wait(context) };
    // Release: a thread that reads the flag as clear sees the request.
    slot.busy.store(false, Ordering::Release);
}

/// Queues a request with registers and stack; a failure is counted with the time that it stands for.
///
/// # Safety
/// The slot belongs to the running thread, and the context is the kernel's.
unsafe fn sample(
    shared: &'static Shared,
    expiration: &Expiration,
    &Claimed { overrun, ns }: &Claimed,
    ticks: u64,
    context: *mut c_void,
) {
    let slot = expiration.slot;
    if shared.stopping.load(Ordering::Relaxed) {
        slot.queue.lost().add(LostCause::Stopping, ns);
        return;
    }
    let mut request = Request { overrun, ticks, flags: expiration.flags(), ..Request::default() };
    // SAFETY: the kernel's context.
    let mut capture = unsafe { ucontext::registers(context) };
    // Acquire: the stack bounds were written before the pointer.
    let java_thread = slot.java_thread.load(Ordering::Acquire);
    if java_thread != 0 {
        // SAFETY: non-zero between the thread's own ThreadStart and ThreadEnd events.
        unsafe { ucontext::add_java_state(&mut capture, java_thread, &shared.offsets) };
        request.flags |= RequestFlags::IN_JAVA_THREAD;
    }
    (request.pc, request.sp, request.fp) = (capture.pc, capture.sp, capture.fp);
    request.thread_state = capture.thread_state as _;
    let (low, high) = (slot.stack_low.load(Ordering::Relaxed), slot.stack_high.load(Ordering::Relaxed));
    let (low, high) = own_stack::bounds(low, high, capture.sp, shared.block);
    // On an alternate stack the interrupted sp is elsewhere; the last Java frame may still be on this one.
    let inside = |sp: u64| (low..high).contains(&sp);
    let from = if inside(capture.sp) { capture.sp } else { capture.anchor_sp };
    let used = if inside(from) { high.saturating_sub(from) } else { 0 };
    if used == 0 {
        request.flags |= RequestFlags::NO_STACK;
    }
    capture.stack_low = from;
    capture.stack_high = high;
    let frames = from..from.saturating_add(used);
    // SAFETY: the session took key and offsets from the VM; the stack is this thread's.
    let compiled_method = shared.compilers.map_or(0, |vm| unsafe { vm.method(&slot.compiler, frames) });
    let mut stack_bytes = used.min(shared.max_stack) as usize;
    // SAFETY: taken on this thread, just now.
    let mounted = unsafe { mounted::of(&capture, shared, slot, stack_bytes) };
    let needed = HEAD_BYTES.saturating_add(padded(stack_bytes)).saturating_add(mounted.bytes());
    // Without a slab the request still has the thread, its pc and its weight.
    if let Some(mut slab) = shared.pool.acquire(needed) {
        let available = slab.capacity().saturating_sub(HEAD_BYTES) & !15;
        stack_bytes = stack_bytes.min(available);
        let mounted = if slab.capacity() >= needed {
            mounted
        } else {
            // SAFETY: found just above.
            unsafe { mounted.within(&capture, available.saturating_sub(padded(stack_bytes))) }
        };
        if (stack_bytes as u64) < used || mounted.is_cut() {
            request.flags |= RequestFlags::TRUNCATED;
        }
        let previous_cycles = slot.last_cycles.load(Ordering::Relaxed);
        let snapshot = Snapshot { capture, compiled_method, previous_cycles, stack_bytes, mounted };
        // SAFETY: the slab is ours; [from, from + stack_bytes) lies in this thread's mapped stack, above this frame.
        let length = unsafe { snapshot.write(slab.as_mut_ptr()) };
        // SAFETY: `length` bytes were written just above.
        request.snapshot = unsafe { slab.publish(length) };
        request.snapshot_len = length as u32;
    }
    // SAFETY: the interrupted thread is the only producer of its queue, and this handler does not nest.
    match unsafe { slot.queue.push(request) } {
        Ok(()) => shared.ready.mark(expiration.index),
        Err(refused) => {
            shared.pool.release(refused.snapshot);
            slot.queue.lost().add(LostCause::QueueFull, ns);
        }
    }
}
