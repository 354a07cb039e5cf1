//! Prefetches of cache lines.
//!
//! Problem: handler and sampler meet lines that another processor has changed, and would wait for each.
//! Approach: the processor's instruction, which begins to fetch a line and does not wait.
//! Invariant: a prefetch is a hint; it accesses nothing and never faults.

#![allow(unsafe_code, reason = "the instructions")]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

/// Executes the prefetch instruction of the processor for an address, if it has one.
///
/// A hint: it accesses nothing and never faults; without effect on other processors than x86-64 and aarch64.
macro_rules! prefetch {
    ($address:expr, x86_64: $x86_64:literal, aarch64: $aarch64:literal) => {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction acts on caches only and accepts every address.
        unsafe {
            core::arch::asm!($x86_64, in(reg) $address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!($aarch64, in(reg) $address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
        let _ = $address;
    };
}

/// Prefetches the cache line at `address` for writing. Another processor was the last to change the lines that a
/// handler changes; a read followed by a write would wait for each of them twice.
///
/// Written as an instruction because `_mm_prefetch` becomes a prefetch for reading on the x86-64 baseline, whose
/// processors without the instruction execute it as a no-op (Intel SDM volume 2, PREFETCHW).
#[inline(always)]
pub(crate) fn prefetch_for_writing<T>(address: *const T) {
    prefetch!(address, x86_64: "prefetchw [{}]", aarch64: "prfm pstl1keep, [{}]");
}

/// Prefetches the cache line at `address` for reading.
#[inline(always)]
pub(crate) fn prefetch_for_reading<T>(address: *const T) {
    prefetch!(address, x86_64: "prefetcht0 [{}]", aarch64: "prfm pldl1keep, [{}]");
}
