//! The threads of perf events, by descriptor.
//!
//! Problem: the signal of a perf event carries its descriptor and no pointer.
//! Approach: a table with slot and key for each descriptor that the process may have. The control side writes it before
//! an event starts, and opens no other event under a descriptor while a signal of the former one may come
//! (`crate::threads::events`).
//! Invariant: a descriptor outside of the table has no event.
//! Sources: fcntl(2) (F_SETSIG), perf_event_open(2) (PERF_EVENT_IOC_PERIOD), Linux 6.18 `fs/fcntl.c`,
//! `send_sigio_to_task`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_long, siginfo_t};

use super::grid::{KEY_MASK, Key};

/// Code of a signal that announces an expiration.
pub const EXPIRED: c_int = 1;

/// Request of ioctl(2) that sets the period of an event and starts a new one (PERF_EVENT_IOC_PERIOD).
pub const SET_PERIOD: u64 = 0x4008_2404;

/// Bits of a word that hold the key; those above hold the slot's index plus one.
const KEY_BITS: u32 = KEY_MASK.count_ones();

/// The beginning of a `siginfo` of these codes on 64-bit Linux.
#[repr(C)]
struct DescriptorInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    band: c_long,
    descriptor: c_int,
}

const _: () = assert!(size_of::<DescriptorInfo>() <= size_of::<siginfo_t>());
const _: () = assert!(align_of::<DescriptorInfo>() <= align_of::<siginfo_t>());

/// The table. All-zero words mean descriptors without an event.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors(&'static [AtomicU32]);

impl Descriptors {
    /// A table with a word for each descriptor; the words are zero.
    pub fn new(words: &'static [AtomicU32]) -> Self {
        Self(words)
    }

    /// Number of descriptors.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Records slot and key of a descriptor's event; returns false if it is beyond the table. For the control side,
    /// before the event is started.
    pub fn set(&self, descriptor: c_int, slot: u32, key: Key) -> bool {
        let Some(word) = self.word(descriptor) else { return false };
        let value = slot.wrapping_add(1).wrapping_shl(KEY_BITS) | u32::from(key.bits());
        // Relaxed: the system call that starts the event comes later.
        word.store(value, Ordering::Relaxed);
        true
    }

    /// Returns slot and key of a descriptor's event. Signal safe.
    #[inline]
    pub fn get(&self, descriptor: c_int) -> Option<(u32, Key)> {
        let word = self.word(descriptor)?.load(Ordering::Relaxed);
        let slot = word.wrapping_shr(KEY_BITS).checked_sub(1)?;
        Some((slot, Key::in_signal_value(u64::from(word))))
    }

    #[inline]
    fn word(&self, descriptor: c_int) -> Option<&'static AtomicU32> {
        self.0.get(usize::try_from(descriptor).ok()?)
    }
}

/// Returns the descriptor of a signal whose code is one of the above. Signal safe.
#[inline]
pub fn descriptor_of(info: &siginfo_t) -> c_int {
    let info: *const DescriptorInfo = core::ptr::from_ref(info).cast();
    // SAFETY: the kernel fills these fields for these codes, and the record is shorter than a siginfo.
    unsafe { (*info).descriptor }
}

/// Lets an event expire every `period_ns`; no effect for a closed descriptor. Signal safe: a plain system call, once
/// for each event (`design/signal-safety.md`).
#[cold]
pub fn set_period(descriptor: c_int, period_ns: u64) {
    // SAFETY: the period is valid for the kernel to read; the request changes no memory of ours.
    unsafe { libc::ioctl(descriptor, SET_PERIOD as _, &raw const period_ns) };
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test may panic")]
mod tests;
