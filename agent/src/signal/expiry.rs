//! What a timer's signal says: whose it is, which of the thread's timers sent it, and what CPU time it stands for.
//!
//! Problem: a thread's timer is replaced when its period changes. A signal of the old one may be on its way then, or its
//! handler just beginning; it must weigh what its own period was, and be counted exactly once.
//! Approach: slots are aligned to 64 bytes, so the low six bits of a signal's value are free for the [`Key`] of the
//! timer. The slot's [`Grid`] holds in one word the key of the present timer and the periods that expired under it.
//! The handler claims its periods by a compare-and-swap; the control side ends a timer by a swap, which tells what was
//! claimed to the last period. Who comes later claims nothing, and the next timer expires that much sooner.
//! The locked instruction stands before the stack is copied (`design/signal-safety.md`).
//! Invariant: the periods the control side has been told of are those of requests pushed or counted as lost.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use core::sync::atomic::{AtomicU64, Ordering};

use libc::siginfo_t;
use queue::RequestFlags;

use super::ucontext;
use crate::arena::{Shared, ThreadSlot};

/// Bits of a [`Key`], and of a slot's address that are always 0.
const KEY_BITS: u32 = 6;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// Bits of a key that number the period.
const PERIOD_MASK: u8 = 0xf;

const _: () = assert!(align_of::<ThreadSlot>() as u64 > KEY_MASK, "a key fits below a slot's address");

/// Periods that can be in use at one time.
pub const PERIODS: usize = PERIOD_MASK as usize + 1;

/// Which of a thread's timers: the number of its period, and two bits that differ from one timer to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Key(u8);

impl Key {
    /// The key of the timer after this one, which runs with period `number`.
    #[must_use]
    pub fn next(self, number: u8) -> Self {
        let turn = (self.0 >> 4).wrapping_add(1) & 3;
        Self(turn << 4 | (number & PERIOD_MASK))
    }

    /// Number of the period.
    pub fn period(self) -> u8 {
        self.0 & PERIOD_MASK
    }

    /// Value of a timer's signal: the slot and the key.
    pub fn signal_value(self, slot: &'static ThreadSlot) -> *mut libc::c_void {
        let slot: *const ThreadSlot = slot;
        slot.cast_mut().cast::<libc::c_void>().wrapping_byte_add(usize::from(self.0))
    }
}

/// The key of a slot's present timer, and how many of its periods have expired. All-zero bytes are a valid grid.
#[derive(Debug, Default)]
pub struct Grid(AtomicU64);

impl Grid {
    /// Adds `periods` if `key` is the present timer's; whether it is. Signal safe.
    #[inline]
    pub fn claim(&self, key: Key, periods: u64) -> bool {
        // Relaxed: the word is all there is to agree on, and every change of it is one exchange.
        let word = self.0.load(Ordering::Relaxed);
        if word & KEY_MASK != u64::from(key.0) {
            return false;
        }
        let counted = word.wrapping_add(periods.wrapping_shl(KEY_BITS));
        // Only the control side competes, and after its exchange the key is another one.
        self.0.compare_exchange(word, counted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Key of the present timer. For the control side.
    pub fn key(&self) -> Key {
        Key((self.0.load(Ordering::Relaxed) & KEY_MASK) as u8)
    }

    /// Periods that expired under the present timer so far. For the control side.
    pub fn periods(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> KEY_BITS
    }

    /// Makes `next` the present timer; the periods that expired under the one before. For the control side.
    pub fn switch(&self, next: Key) -> u64 {
        self.0.swap(u64::from(next.0), Ordering::Relaxed) >> KEY_BITS
    }
}

/// One delivered signal of a timer of ours.
pub struct Expiry {
    /// Number of the slot.
    pub index: u32,
    /// The slot.
    pub slot: &'static ThreadSlot,
    /// Expirations beyond the first.
    pub overrun: u32,
    key: Key,
}

impl Expiry {
    /// What a signal says; `None` if it is none of a timer of ours. Signal safe.
    ///
    /// # Safety
    /// `info` is what the kernel passed to the handler.
    #[inline(always)]
    pub unsafe fn of(shared: &Shared, info: *const siginfo_t) -> Option<Self> {
        // SAFETY: the caller passes the kernel's siginfo.
        let info = unsafe { info.as_ref() }?;
        if info.si_code != libc::SI_TIMER {
            return None;
        }
        // SAFETY: SI_TIMER means that the value member is the valid one.
        let value = unsafe { info.si_value() };
        // SAFETY: as above for the overrun count.
        let overrun = unsafe { info.si_overrun() };
        let key = value.sival_ptr as u64 & KEY_MASK;
        let pointer = value.sival_ptr.wrapping_byte_sub(key as usize);
        ucontext::prefetch(pointer, ThreadSlot::LINES);
        let (index, slot) = shared.slot_at(pointer)?;
        Some(Self { index, slot, overrun: u32::try_from(overrun).unwrap_or(0), key: Key(key as u8) })
    }

    /// Whether a signal comes from a timer of an earlier profile, whose account is closed. Signal safe.
    ///
    /// # Safety
    /// As [`Expiry::of`].
    #[cold]
    pub unsafe fn is_of_former(shared: &'static Shared, info: *const siginfo_t) -> bool {
        // SAFETY: by the caller's promise.
        shared.all().skip(1).any(|former| unsafe { Self::of(former, info) }.is_some())
    }

    /// The CPU time it stands for, in nanoseconds; `None` if its timer was replaced meanwhile. Signal safe.
    #[inline(always)]
    pub fn claim(&self, shared: &Shared) -> Option<u64> {
        let periods = u64::from(self.overrun).saturating_add(1);
        let period_ns = shared.period_ns(self.key.period());
        self.slot.grid.claim(self.key, periods).then(|| periods.saturating_mul(period_ns))
    }

    /// The flags of a request that stands for it: the period's number. Signal safe.
    #[inline(always)]
    pub fn flags(&self) -> RequestFlags {
        RequestFlags::EMPTY.with_period(self.key.period())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "a test may panic")]
mod tests;
