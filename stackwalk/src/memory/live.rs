//! Memory of the own process, read without faulting.
//!
//! Problem: a plain load from metadata that the VM has just freed would crash the process being profiled.
//! Approach: ranges registered as permanent (committed code, libjvm's image) are loaded directly; everything
//! else goes through `process_vm_readv` on ourselves, which reports a bad address instead of faulting, or
//! through `/proc/self/mem` where a sandbox forbids that call.
//! Invariant: the only loads in this file are inside registered ranges.
//! Loads are volatile because the VM writes to the same memory at the same time.
//! Source: `process_vm_readv(2)`; the permission check of a process on itself always passes.

#![allow(unsafe_code)]

use crate::memory::{Memory, Unreadable, each_word};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Ranges that can be registered: three for each of up to eight code heaps, the segments of libjvm and the C library,
/// counters, and the archive of classes.
const MAX_RANGES: usize = 48;

/// A registered range. A slot is reserved by setting `start` and becomes usable with `end`; Release stores of
/// `end` pair with the Acquire loads in [`LiveMemory::is_permanent`].
#[derive(Debug)]
struct Range {
    start: AtomicU64,
    end: AtomicU64,
}

/// How memory outside the registered ranges is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// By `process_vm_readv`.
    ProcessVmReadv,
    /// By `pread` of `/proc/self/mem`.
    ProcSelfMem,
    /// Not at all: only registered ranges are readable.
    RegisteredOnly,
}

/// Reader of the own process; shared by all threads.
#[derive(Debug)]
pub struct LiveMemory {
    ranges: [Range; MAX_RANGES],
    /// The range of the last load, which is looked at first: most loads of a walk are from one code heap.
    /// Relaxed: a hint; a wrong one costs a search.
    last: AtomicUsize,
    /// Checked reads so far. Relaxed: a count.
    checked: AtomicU64,
    access: Access,
    proc_self_mem: libc::c_int,
}

impl Default for LiveMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl LiveMemory {
    /// Creates a reader with the first checked read that this process is allowed to do.
    #[must_use]
    pub fn new() -> Self {
        let mut memory = Self {
            ranges: [const { Range { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; MAX_RANGES],
            last: AtomicUsize::new(0),
            checked: AtomicU64::new(0),
            access: Access::ProcessVmReadv,
            proc_self_mem: -1,
        };
        if memory.probe() {
            return memory;
        }
        // SAFETY: the path is a NUL-terminated literal; open keeps no reference to it.
        memory.proc_self_mem =
            unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        memory.access = Access::ProcSelfMem;
        if memory.proc_self_mem < 0 || !memory.probe() {
            memory.access = Access::RegisteredOnly;
        }
        memory
    }

    /// How memory outside the registered ranges is read.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns how many reads so far were none of registered ranges; each is one system call or more.
    #[must_use]
    pub fn checked_reads(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Returns whether memory is still read: the program may have closed the descriptor of `/proc/self/mem`, and use
    /// its number for another file.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.access != Access::ProcSelfMem || self.probe()
    }

    /// The descriptor of `/proc/self/mem`, if memory is read through it; open as long as the reader lives.
    #[must_use]
    pub fn proc_self_mem(&self) -> Option<libc::c_int> {
        (self.access == Access::ProcSelfMem).then_some(self.proc_self_mem)
    }

    /// Declares the addresses from `start` up to `end` to be loadable for as long as the process lives.
    ///
    /// A range with a start that is already registered replaces that range's end, so growing ranges can be
    /// registered again. Returns whether a slot was free.
    ///
    /// # Safety
    /// The whole range must be mapped readable now and must never be unmapped or protected again.
    pub unsafe fn add_permanent(&self, start: u64, end: u64) -> bool {
        if start == 0 {
            return false;
        }
        for range in &self.ranges {
            // Looked at first: a walk registers the code heaps again, and an exchange costs much more than a load.
            let known = range.start.load(Ordering::Acquire);
            let taken = match known {
                0 => range.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Acquire),
                other => Err(other),
            };
            if taken.is_ok() || taken == Err(start) {
                // Walks of all threads look at this line.
                if range.end.load(Ordering::Acquire) != end {
                    range.end.store(end, Ordering::Release);
                }
                return true;
            }
        }
        false
    }

    /// Returns whether the chosen access can read a known word.
    fn probe(&self) -> bool {
        let known = 0x0123_4567_89ab_cdef_u64;
        let address = core::ptr::from_ref(&known).expose_provenance() as u64;
        let mut bytes = [0; 8];
        self.read_checked(address, &mut bytes).is_ok() && u64::from_ne_bytes(bytes) == known
    }

    /// Returns whether the range of the last load has all these bytes.
    pub(crate) fn is_in_last_range(&self, address: u64, length: usize) -> bool {
        let range = self.ranges.get(self.last.load(Ordering::Relaxed));
        let end = address.checked_add(length as u64);
        range.zip(end).is_some_and(|(range, end)| {
            address >= range.start.load(Ordering::Acquire) && end <= range.end.load(Ordering::Acquire)
        })
    }

    fn is_permanent(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else {
            return false;
        };
        // An unused slot contains nothing, because its end is 0.
        let contains = |range: &Range| {
            address >= range.start.load(Ordering::Acquire) && end <= range.end.load(Ordering::Acquire)
        };
        if self.ranges.get(self.last.load(Ordering::Relaxed)).is_some_and(contains) {
            return true;
        }
        for (index, range) in self.ranges.iter().enumerate() {
            if range.start.load(Ordering::Acquire) == 0 {
                return false;
            }
            if contains(range) {
                self.last.store(index, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn read_checked(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.checked.fetch_add(1, Ordering::Relaxed);
        let length = into.len();
        let read = match self.access {
            Access::ProcessVmReadv => {
                let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: length };
                let remote = libc::iovec {
                    iov_base: core::ptr::without_provenance_mut(address as usize),
                    iov_len: length,
                };
                // SAFETY: `local` describes the exclusively borrowed `into`.
                unsafe { read_own_process(&local, &[remote]) }
            }
            Access::ProcSelfMem => {
                let offset = libc::off_t::try_from(address).map_err(|_| Unreadable(address))?;
                // SAFETY: the kernel writes at most `length` bytes to the exclusively borrowed `into`.
                unsafe { libc::pread(self.proc_self_mem, into.as_mut_ptr().cast(), length, offset) }
            }
            Access::RegisteredOnly => -1,
        };
        if usize::try_from(read) == Ok(length) { Ok(()) } else { Err(Unreadable(address)) }
    }

    /// Reads words by one system call; `None` if it is not available or a word is missing.
    fn read_words_checked<const N: usize>(&self, addresses: [u64; N]) -> Option<[u64; N]> {
        if self.access != Access::ProcessVmReadv {
            return None;
        }
        self.checked.fetch_add(1, Ordering::Relaxed);
        let mut words = [0_u64; N];
        let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
        let remote = addresses.map(|address| libc::iovec {
            iov_base: core::ptr::without_provenance_mut(address as usize),
            iov_len: size_of::<u64>(),
        });
        // SAFETY: `local` describes all of `words`.
        let read = unsafe { read_own_process(&local, &remote) };
        (usize::try_from(read) == Ok(size_of_val(&words))).then_some(words)
    }
}

/// Copies memory of the own process to `local`, one range after the other; returns the number of bytes, or -1.
///
/// # Safety
/// `local` must describe memory that may be written; the kernel checks what `remote` describes.
unsafe fn read_own_process(local: &libc::iovec, remote: &[libc::iovec]) -> libc::ssize_t {
    // Asked each time: a process that is restored from a checkpoint may have another id, and the old one may be that of
    // a foreign process. SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: `local` may be written as the caller has promised, and `remote` is a slice.
    unsafe { libc::process_vm_readv(process, local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0) }
}

/// Loads a number at `address`.
///
/// # Safety
/// The bytes of a `T` at `address` must be readable, `address` a multiple of its size, and `T` an integer.
unsafe fn load_number<T>(address: u64) -> T {
    let at = core::ptr::with_exposed_provenance::<T>(address as usize);
    // SAFETY: readable and aligned, as the caller has promised; all bits make an integer.
    unsafe { at.read_volatile() }
}

/// Copies registered memory to `into`.
///
/// # Safety
/// All of the `into.len()` bytes at `address` must be readable.
unsafe fn load(address: u64, into: &mut [u8]) {
    let (words, tail) =
        if address.is_multiple_of(8) { into.as_chunks_mut::<8>() } else { (&mut [][..], into) };
    let mut at = address;
    for word in words {
        // SAFETY: inside the caller's range; `at` starts aligned and moves by eight.
        *word = unsafe { load_number::<u64>(at) }.to_ne_bytes();
        at += 8;
    }
    for byte in tail {
        // SAFETY: inside the caller's range.
        *byte = unsafe { load_number(at) };
        at += 1;
    }
}

impl Memory for LiveMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        if self.is_permanent(address, into.len() as u64) {
            // SAFETY: `add_permanent`'s caller promised that this memory stays readable.
            unsafe { load(address, into) };
            return Ok(());
        }
        self.read_checked(address, into)
    }

    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        if address.is_multiple_of(8) && self.is_permanent(address, 8) {
            // SAFETY: aligned, and `add_permanent`'s caller promised that this memory stays readable.
            return Ok(unsafe { load_number(address) });
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read_u32(&self, address: u64) -> Result<u32, Unreadable> {
        if address.is_multiple_of(4) && self.is_permanent(address, 4) {
            // SAFETY: aligned, and `add_permanent`'s caller promised that this memory stays readable.
            return Ok(unsafe { load_number(address) });
        }
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read_i32(&self, address: u64) -> Result<i32, Unreadable> {
        self.read_u32(address).map(u32::cast_signed)
    }

    fn is_loaded_directly(&self, address: u64, length: usize) -> bool {
        self.is_permanent(address, length as u64)
    }

    fn read_words<const N: usize>(&self, addresses: [u64; N]) -> Result<[u64; N], Unreadable> {
        if addresses.iter().all(|&address| self.is_permanent(address, 8)) {
            return each_word(self, addresses);
        }
        match self.read_words_checked(addresses) {
            Some(words) => Ok(words),
            // The error names the word that is missing.
            None => each_word(self, addresses),
        }
    }
}

impl Drop for LiveMemory {
    fn drop(&mut self) {
        if self.proc_self_mem >= 0 {
            // SAFETY: the descriptor was opened by `new` and is closed only here.
            unsafe { libc::close(self.proc_self_mem) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_of<T>(value: &T) -> u64 {
        core::ptr::from_ref(value).expose_provenance() as u64
    }

    #[test]
    fn reads_both_ways_and_survives_bad_addresses() {
        let memory = LiveMemory::new();
        assert_ne!(memory.access(), Access::RegisteredOnly);
        let words = [1_u64, 2, 3, 4];
        let address = address_of(&words);
        let mut bytes = [0; 19];
        for _ in 0..2 {
            memory.read(address + 3, &mut bytes).unwrap();
            assert_eq!(bytes[5], 2);
            assert_eq!(memory.read_u64(address + 16), Ok(3));
            assert_eq!(memory.read_u64(16), Err(Unreadable(16)));
            assert_eq!((memory.read_u32(address + 24), memory.read_u32(address + 7)), (Ok(4), Ok(0x200)));
            assert_eq!(memory.read_u32(16), Err(Unreadable(16)));
            // SAFETY: `words` outlives `memory`'s use of it.
            assert!(unsafe { memory.add_permanent(address, address + 32) });
        }
        assert!(memory.is_permanent(address, 32));
        assert!(!memory.is_permanent(address, 33));
        let checked = memory.checked_reads();
        assert_eq!(memory.read_words([address + 24, address]), Ok([4, 1]));
        assert_eq!(memory.checked_reads(), checked, "of registered memory");
        assert_eq!(memory.read_u64(16), Err(Unreadable(16)));
        assert_eq!(memory.checked_reads(), checked + 1);
        assert_eq!(memory.read_words([address + 24, 16, address]), Err(Unreadable(16)));
    }

    /// A process with another id than the one in which the reader was made, as after the restore of a checkpoint.
    #[test]
    fn a_process_with_another_id_reads_itself() {
        let memory = LiveMemory::new();
        let word = AtomicU64::new(1);
        let address = address_of(&word);
        // SAFETY: the child calls only functions that are safe in a signal handler.
        let child = unsafe { libc::fork() };
        if child == 0 {
            word.store(2, Ordering::Relaxed);
            let status = i32::from(memory.read_u64(address) != Ok(2));
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(status) };
        }
        assert!(child > 0, "a child process");
        let mut status = -1;
        // SAFETY: `status` is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child read the word of its parent");
    }
}
