//! Prefetches of cache lines.
//!
//! Problem: handler and sampler meet lines that another processor has changed, and would wait for each.
//! Approach: the processor's instruction, a hint that begins to fetch a line, does not wait, and never faults.

#![allow(unsafe_code, reason = "the instructions")]

/// Executes the prefetch instruction of x86-64 or aarch64 for an address.
macro_rules! prefetch {
    ($address:expr, x86_64: $x86_64:literal, aarch64: $aarch64:literal) => {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction acts on caches only and accepts every address.
        unsafe {
            core::arch::asm!($x86_64, in(reg) $address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: the instruction acts on caches only and accepts every address.
        unsafe {
            core::arch::asm!($aarch64, in(reg) $address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
        let _ = $address;
    };
}

/// Prefetches the cache line at `address` for writing: a read followed by a write would wait twice for a line that
/// another processor has changed.
///
/// An instruction, because `_mm_prefetch` prefetches for reading on the x86-64 baseline; processors without PREFETCHW
/// execute it as a no-op (Intel SDM volume 2, PREFETCHW).
#[inline(always)]
pub(crate) fn prefetch_for_writing<T>(address: *const T) {
    prefetch!(address, x86_64: "prefetchw [{}]", aarch64: "prfm pstl1keep, [{}]");
}

/// Prefetches the cache line at `address` for reading; never faults.
#[inline(always)]
pub fn prefetch_for_reading<T>(address: *const T) {
    prefetch!(address, x86_64: "prefetcht0 [{}]", aarch64: "prfm pldl1keep, [{}]");
}
