//! Memory of the own process, read by one thread through the VM's fault-tolerant load.
//!
//! Problem: memory that the VM may free is read by a system call ([`LiveMemory`]), and names and debug information take
//! several for each sample.
//! Approach: HotSpot has a function that loads a word, and its handler of SIGSEGV and SIGBUS lets it return a
//! substitute where that load faults. Reads are assembled from the aligned words around their bytes, which are readable
//! where the bytes are: a word lies in one page. Long reads are system calls, which then cost less.
//! Invariants: a word is unreadable only if two loads returned two different substitutes. The reader belongs to one
//! thread (it is not `Sync`), because the function needs the signals unblocked on the thread that calls it.
//! Sources: `os_cpu/linux_{x86,aarch64}/safefetch_linux_*.S`, `os/posix/{safefetch_static,signals}_posix.cpp`;
//! `design/hotspot.md`.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::{Ordering, fence};

use crate::memory::live::LiveMemory;
use crate::memory::{Memory, Unreadable, each_word};

/// A function that loads the word at an address, or returns its second argument if that load faults.
pub type LoadWord = unsafe extern "C" fn(*const u64, u64) -> u64;

/// The function to load by, or why memory is read by system calls.
pub type Choice = Result<LoadWord, &'static str>;

/// Substitutes for words that cannot be loaded: no addresses, and unlikely as data. They differ in every bit.
const SUBSTITUTES: [u64; 2] = [0x5af3_c96d_b41e_872d, !0x5af3_c96d_b41e_872d];

/// Longest read by loads, in bytes. Estimated, not measured: a system call costs as much as some hundred words.
const MOST: usize = 1024;

/// A reader of the own process for one thread.
pub struct SafeFetch {
    live: &'static LiveMemory,
    choose: Box<dyn Fn() -> Choice + Send>,
    choice: Cell<Choice>,
}

impl core::fmt::Debug for SafeFetch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SafeFetch").field("choice", &self.choice.get()).finish_non_exhaustive()
    }
}

impl SafeFetch {
    /// A reader that reads like `live` until [`Memory::choose_access`] is called, which calls `choose` each time.
    ///
    /// # Safety
    /// On the thread that calls [`Memory::choose_access`], until its next call: the function that `choose` returns must
    /// load the word at any address that is a multiple of eight, and return its second argument if that load faults.
    /// Only that thread may read from then on.
    #[must_use]
    pub unsafe fn new(live: &'static LiveMemory, choose: impl Fn() -> Choice + Send + 'static) -> Self {
        Self { live, choose: Box::new(choose), choice: Cell::new(Err("no access was chosen")) }
    }

    /// The function, if `length` bytes are read by it.
    fn load(&self, length: usize) -> Option<LoadWord> {
        self.choice.get().ok().filter(|_| length <= MOST)
    }

    /// The function, if the `length` bytes at `address` are read by it. A load of registered memory costs less than a
    /// call, but a search in all its ranges costs more.
    #[inline]
    fn load_at(&self, address: u64, length: usize) -> Option<LoadWord> {
        if self.live.is_in_last_range(address, length) { None } else { self.load(length) }
    }

    /// The word at an address that is a multiple of eight, if it is read by the function.
    #[inline]
    fn aligned(&self, address: u64) -> Option<Result<u64, Unreadable>> {
        let load = self.load_at(address, size_of::<u64>())?;
        // A mark that is read before or after this must not change places with it, as it cannot with a system call.
        fence(Ordering::Acquire);
        // SAFETY: `load` is the present choice, and this the thread that made it, by the promise of `new`.
        let found = unsafe { word(load, address) };
        fence(Ordering::Acquire);
        Some(found.ok_or(Unreadable(address)))
    }
}

/// Loads the word at `address`.
///
/// # Safety
/// `load` must keep the promise of [`SafeFetch::new`], and `address` be a multiple of eight.
unsafe fn word(load: LoadWord, address: u64) -> Option<u64> {
    let at = core::ptr::with_exposed_provenance(address as usize);
    for substitute in SUBSTITUTES {
        // SAFETY: by the caller's promise.
        let found = unsafe { load(at, substitute) };
        if found != substitute {
            return Some(found);
        }
    }
    None
}

/// Copies the bytes from `address` on, from the words around them.
///
/// # Safety
/// `load` must keep the promise of [`SafeFetch::new`].
unsafe fn assemble(load: LoadWord, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
    let refused = Unreadable(address);
    address.checked_add(into.len() as u64).ok_or(refused)?;
    let (mut at, mut skipped) = (address & !7, (address & 7) as usize);
    let mut rest = into;
    while !rest.is_empty() {
        // SAFETY: by the caller's promise; `at` is a multiple of eight.
        let bytes = unsafe { word(load, at) }.ok_or(refused)?.to_ne_bytes();
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let (now, later) = rest.split_at_mut(bytes.len().min(rest.len()));
        now.copy_from_slice(bytes.get(..now.len()).unwrap_or_default());
        (rest, at, skipped) = (later, at.wrapping_add(8), 0);
    }
    Ok(())
}

impl Memory for SafeFetch {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let Some(load) = self.load_at(address, into.len()) else { return self.live.read(address, into) };
        // A mark that is read before or after this must not change places with it, as it cannot with a system call.
        fence(Ordering::Acquire);
        // SAFETY: `load` is the present choice, and this the thread that made it, by the promise of `new`.
        let outcome = unsafe { assemble(load, address, into) };
        fence(Ordering::Acquire);
        outcome
    }

    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        if address.is_multiple_of(8) {
            return self.aligned(address).unwrap_or_else(|| self.live.read_u64(address));
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read_u32(&self, address: u64) -> Result<u32, Unreadable> {
        let from = address % 8;
        if from <= 4 {
            // Both supported CPUs are little-endian.
            let half = |word: u64| (word >> (8 * from)) as u32;
            let word = self.aligned(address - from);
            let found = word.map(|word| word.map(half).map_err(|_| Unreadable(address)));
            return found.unwrap_or_else(|| self.live.read_u32(address));
        }
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read_i32(&self, address: u64) -> Result<i32, Unreadable> {
        self.read_u32(address).map(u32::cast_signed)
    }

    fn is_loaded_directly(&self, address: u64, length: usize) -> bool {
        self.load(length).is_some() || self.live.is_loaded_directly(address, length)
    }

    fn choose_access(&self) -> Option<Result<(), &'static str>> {
        self.choice.set((self.choose)());
        Some(self.choice.get().map(drop))
    }

    fn read_words<const N: usize>(&self, addresses: [u64; N]) -> Result<[u64; N], Unreadable> {
        if self.load(size_of::<u64>()).is_some() {
            return each_word(self, addresses);
        }
        self.live.read_words(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    fn live() -> &'static LiveMemory {
        static LIVE: OnceLock<LiveMemory> = OnceLock::new();
        LIVE.get_or_init(LiveMemory::new)
    }

    /// Calls of the stand-in below; of one test.
    static CALLS: AtomicU64 = AtomicU64::new(0);

    /// Stands in for the VM's function: the first page and addresses of the kernel fault.
    unsafe extern "C" fn load(at: *const u64, substitute: u64) -> u64 {
        assert!(at.is_aligned(), "{at:?}");
        if (at as u64) < 4096 || at as u64 >= 1 << 63 {
            return substitute;
        }
        // SAFETY: the tests read their own memory only.
        unsafe { at.read_volatile() }
    }

    unsafe extern "C" fn counted(at: *const u64, substitute: u64) -> u64 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as there.
        unsafe { load(at, substitute) }
    }

    fn loading(function: LoadWord) -> SafeFetch {
        // SAFETY: the stand-ins keep the promise of a `LoadWord`.
        let memory = unsafe { SafeFetch::new(live(), move || Ok(function)) };
        assert_eq!(memory.choose_access(), Some(Ok(())));
        memory
    }

    #[test]
    fn every_offset_and_length_is_assembled() {
        let memory = loading(load);
        let words: Vec<u64> = (0..200_u64).map(|word| word.wrapping_mul(0x0102_0408_1020_4081)).collect();
        let address = words.as_ptr().expose_provenance() as u64;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for offset in 0..24 {
            for length in (0..70).chain([MOST - 1, MOST, MOST + 1]) {
                let mut into = alloc::vec![0; length];
                memory.read(address + offset as u64, &mut into).unwrap();
                assert_eq!(into, bytes[offset..offset + length], "{offset} {length}");
            }
            let number = u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap());
            assert_eq!(memory.read_u32(address + offset as u64), Ok(number));
        }
        assert_eq!(memory.read_words([address + 16, address]), Ok([words[2], words[0]]));
    }

    #[test]
    fn a_fault_is_an_error_and_a_word_like_a_substitute_is_none() {
        let memory = loading(load);
        for address in [0, 1, 16, 4095, 1 << 63, u64::MAX - 7, u64::MAX - 3] {
            assert_eq!(memory.read_u64(address), Err(Unreadable(address)), "{address:x}");
        }
        assert_eq!(memory.read_words([8, 16]), Err(Unreadable(8)));
        for word in SUBSTITUTES {
            let address = core::ptr::from_ref(&word).expose_provenance() as u64;
            assert_eq!(memory.read_u64(address), Ok(word));
        }
    }

    #[test]
    fn memory_is_read_by_the_last_choice() {
        static LOADS: AtomicBool = AtomicBool::new(false);
        let choose = || if LOADS.load(Ordering::Relaxed) { Ok(counted as LoadWord) } else { Err("none") };
        // SAFETY: the stand-in keeps the promise of a `LoadWord`.
        let memory = unsafe { SafeFetch::new(live(), choose) };
        let word = 7_u64;
        let address = core::ptr::from_ref(&word).expose_provenance() as u64;
        let calls = || CALLS.swap(0, Ordering::Relaxed);
        assert_eq!((memory.read_u64(address), calls()), (Ok(7), 0), "before the first choice");
        for loads in [false, true, false] {
            LOADS.store(loads, Ordering::Relaxed);
            assert_eq!(memory.choose_access(), Some(if loads { Ok(()) } else { Err("none") }));
            assert_eq!((memory.read_u64(address), calls()), (Ok(7), u64::from(loads)));
            assert_eq!((memory.read_u64(16), calls()), (Err(Unreadable(16)), 2 * u64::from(loads)));
            assert_eq!(memory.is_loaded_directly(address, MOST), loads);
            assert!(!memory.is_loaded_directly(address, MOST + 1));
        }
    }
}
