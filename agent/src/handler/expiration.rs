//! One delivered signal of a timer or a perf event: its thread, its timer, and the CPU time it stands for.
//!
//! Approach: slots are aligned to 64 bytes, so a signal's value holds the address of the slot and, in the low six bits,
//! the [`Key`] of the timer ([`ThreadSlot::signal_value`]). The slot's [`Grid`](crate::clock::grid::Grid) decides
//! whether that timer is current, its [`Draw`](super::draw::Draw) whether the signal is a sample. Keys repeat, and
//! kernels before 6.13 deliver signals of deleted timers, so the kernel's number of the timer must match as well. A
//! perf event's signal carries a descriptor, for which a table has slot and key.
//! The locked instruction of the claim comes before the copy of the stack (`design/signal-safety.md`).

use core::sync::atomic::Ordering;

use libc::siginfo_t;
use queue::{LostCause, RequestFlags};

use super::ucontext;
use crate::clock::descriptors::{self, EXPIRED};
use crate::clock::grid::{Claim, KEY_MASK, Key};
use crate::clock::timer::UNKNOWN_NUMBER;
use crate::handler::slots::{Shared, ThreadSlot};

/// One delivered signal of one of our timers.
pub struct Expiration {
    pub index: u32,
    pub slot: &'static ThreadSlot,
    /// Expirations beyond the first.
    overrun: u32,
    key: Key,
    /// The kernel's number of the timer, or the descriptor, plus one.
    timer: i32,
    /// True for a perf event.
    is_event: bool,
}

/// The CPU time that a sample stands for.
pub struct Claimed {
    /// Periods beyond the first.
    pub overrun: u32,
    /// In nanoseconds.
    pub ns: u64,
}

impl Expiration {
    /// Decodes a signal; `None` if none of our timers sent it. Signal safe.
    ///
    /// # Safety
    /// `info` is the kernel's, as passed to the handler.
    #[inline(always)]
    pub unsafe fn of(shared: &Shared, info: *const siginfo_t) -> Option<Self> {
        // SAFETY: the caller passes the kernel's siginfo.
        let info = unsafe { info.as_ref() }?;
        if info.si_code != libc::SI_TIMER {
            return Self::of_event(shared, info);
        }
        // SAFETY: SI_TIMER means that the value member is the valid one.
        let value = unsafe { info.si_value() };
        // SAFETY: SI_TIMER means that the overrun count is valid.
        let overrun = unsafe { info.si_overrun() };
        let key = Key::in_signal_value(value.sival_ptr as u64);
        let pointer = value.sival_ptr.wrapping_byte_sub((value.sival_ptr as u64 & KEY_MASK) as usize);
        ucontext::prefetch(pointer, ThreadSlot::LINES);
        let (index, slot) = shared.slot_at(pointer)?;
        // SAFETY: SI_TIMER means that the kernel's number of the timer is valid.
        let timer = unsafe { info.si_timerid() }.wrapping_add(1);
        let overrun = u32::try_from(overrun).unwrap_or(0);
        Some(Self { index, slot, overrun, key, timer, is_event: false })
    }

    /// Decodes the signal of a perf event. Signal safe.
    #[inline]
    fn of_event(shared: &Shared, info: &siginfo_t) -> Option<Self> {
        let table = shared.descriptors?;
        if info.si_code != EXPIRED {
            return None;
        }
        let descriptor = descriptors::descriptor_of(info);
        let (index, key) = table.get(descriptor)?;
        let slot = shared.slots.get(usize::try_from(index).ok()?)?;
        let timer = descriptor.wrapping_add(1);
        Some(Self { index, slot, overrun: 0, key, timer, is_event: true })
    }

    /// Returns whether a timer of an earlier profile sent the signal; that profile's account is closed. Signal safe.
    ///
    /// # Safety
    /// As [`Expiration::of`].
    #[cold]
    pub unsafe fn is_of_former(shared: &'static Shared, info: *const siginfo_t) -> bool {
        // SAFETY: `info` is the kernel's.
        shared.all().skip(1).any(|former| unsafe { Self::of(former, info) }.is_some())
    }

    /// Claims the CPU time of the signal and of those skipped before it. `None` if it is skipped as well, or if its
    /// timer has been replaced, which is counted; the next timer covers its time. Signal safe.
    #[inline(always)]
    pub fn claim(&self, shared: &Shared) -> Option<Claimed> {
        let slot = self.slot;
        let period_ns = shared.period_ns(self.key.period());
        let mean_ns = shared.distance_ns.load(Ordering::Relaxed);
        let timer = slot.timer.load(Ordering::Relaxed);
        let is_current = self.timer == timer || timer == UNKNOWN_NUMBER;
        let further = if self.is_event { slot.drift.next() } else { 0 };
        if self.is_event && is_current && slot.begins.load(Ordering::Relaxed) == self.timer {
            slot.begins.store(0, Ordering::Relaxed);
            descriptors::set_period(self.timer.wrapping_sub(1), period_ns);
        }
        let expired = u64::from(self.overrun).saturating_add(1).saturating_add_signed(further);
        if expired == 0 && is_current {
            slot.drift.apply(further);
            return None;
        }
        let drawn = slot.draw.look(expired, period_ns, mean_ns);
        let claim =
            if is_current { slot.grid.claim(self.key, drawn.periods, drawn.take) } else { Claim::Overtaken };
        if self.is_event && claim != Claim::Overtaken {
            slot.drift.apply(further);
        }
        match claim {
            Claim::Overtaken => slot.queue.lost().add(LostCause::Overtaken, 0),
            Claim::Passed => slot.draw.note(drawn, false, mean_ns),
            Claim::Taken(periods) => {
                slot.draw.note(drawn, true, mean_ns);
                let overrun = u32::try_from(periods.saturating_sub(1)).unwrap_or(u32::MAX);
                let ns = u64::from(overrun).saturating_add(1).saturating_mul(period_ns);
                return Some(Claimed { overrun, ns });
            }
        }
        None
    }

    /// Returns the flags of the request: the index of the period. Signal safe.
    #[inline(always)]
    pub fn flags(&self) -> RequestFlags {
        RequestFlags::EMPTY.with_period(self.key.period())
    }
}
