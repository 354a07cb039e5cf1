//! The record that a signal handler leaves for one sample.
//!
//! Approach: plain integers in a `repr(C)` struct of 48 bytes, written on the profiled thread; the copied stack lies in
//! a slab of the snapshot pool and is identified by handle and length.
//! Invariant: a `Request` owns nothing. It may be copied, forged or dropped without any effect on memory safety;
//! [`crate::SnapshotPool::view`] checks the handle.

use crate::pool::slab_header::SnapshotHandle;

/// One sample as the handler recorded it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Program counter at the interrupted instruction, an address.
    pub pc: u64,
    /// Stack pointer, an address.
    pub sp: u64,
    /// Frame pointer register; code compiled without frame pointers uses it for other values.
    pub fp: u64,
    /// When the handler ran: a monotonic counter of the host's choice, which this crate does not interpret.
    pub ticks: u64,
    /// The slab with the copied stack, or [`SnapshotHandle::NONE`].
    pub snapshot: SnapshotHandle,
    /// Valid bytes in that slab.
    pub snapshot_len: u32,
    /// Timer expirations beyond the first that this delivery stands for.
    pub overrun: u32,
    /// State word of the interrupted thread in the host's own encoding; this crate does not interpret it.
    pub thread_state: i16,
    /// Properties of the request.
    pub flags: RequestFlags,
}

const _: () = assert!(size_of::<Request>() == 48, "the ring's memory budget is 48 bytes an entry");
const _: () = assert!(align_of::<Request>() == 8);

impl Request {
    /// Timer periods this request stands for: the delivered one and the overruns.
    pub fn periods(&self) -> u64 {
        u64::from(self.overrun).saturating_add(1)
    }

    /// CPU time this request stands for, in nanoseconds, given the timer interval in nanoseconds.
    ///
    /// Saturates, so that a corrupt overrun cannot wrap into a small and plausible weight.
    pub fn cpu_ns(&self, interval_ns: u64) -> u64 {
        self.periods().saturating_mul(interval_ns)
    }
}

/// Bits that qualify a [`Request`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags(u16);

impl RequestFlags {
    /// Nothing special.
    pub const EMPTY: Self = Self(0);
    /// The snapshot ends before the stack does, or has no frozen frames: the slab was too small, or the cap was
    /// reached.
    pub const TRUNCATED: Self = Self(1 << 0);
    /// No stack could be copied; only the registers are valid.
    pub const NO_STACK: Self = Self(1 << 1);
    /// The interrupted thread is one the host's managed code runs on, so `thread_state` is meaningful.
    pub const IN_JAVA_THREAD: Self = Self(1 << 2);

    /// First of the four bits that hold [`RequestFlags::period`].
    const PERIOD_SHIFT: u32 = 8;

    /// These flags with the number of the sample's timer period, 0 to 15; higher bits are cut off.
    ///
    /// The interval may change while requests are in flight, so each carries the number of its own period.
    #[must_use]
    pub const fn with_period(self, number: u8) -> Self {
        let cleared = self.0 & !(0xf << Self::PERIOD_SHIFT);
        Self(cleared | ((number & 0xf) as u16) << Self::PERIOD_SHIFT)
    }

    /// Number of the timer period, 0 to 15.
    pub const fn period(self) -> u8 {
        (self.0 >> Self::PERIOD_SHIFT) as u8 & 0xf
    }

    /// The raw bits, for the wire and for flags that users of this crate define above bit 11.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Flags of any bits; unknown ones are kept.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// True if every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitOr for RequestFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl core::ops::BitOrAssign for RequestFlags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}
