//! The code at which the kernel starts the program: the root of the process's first thread.
//!
//! Problem: C libraries before glibc 2.27 have no unwind table for `_start`, and launchers of JDK 11 and 17 contain it.
//! Approach: the kernel passes the address to the process. Code there that no table covers has no caller.
//! Invariant: the address is that of the program or its loader, never of a library, whose ELF header often names its
//! first function.
//! Source: getauxval(3), `AT_ENTRY`; `sysdeps/x86_64/start.S` and `sysdeps/aarch64/start.S` of glibc, the routine of
//! fewer than 64 bytes that calls `__libc_start_main` and never returns.

/// `AT_ENTRY` of `<elf.h>`.
const AT_ENTRY: u64 = 9;
/// Bytes of the routine.
const ENTRY_BYTES: u64 = 64;

/// The start of the program's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry(Option<u64>);

impl Entry {
    /// Returns that of this process; reads a file.
    pub fn of_process() -> Self {
        Self::parse(&std::fs::read("/proc/self/auxv").unwrap_or_default())
    }

    fn parse(auxiliary: &[u8]) -> Self {
        let (words, _) = auxiliary.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let found = pairs.iter().find(|[key, _]| u64::from_ne_bytes(*key) == AT_ENTRY);
        Self(found.map(|[_, value]| u64::from_ne_bytes(*value)))
    }

    /// True if the routine contains `pc`.
    pub fn contains(self, pc: u64) -> bool {
        self.0.and_then(|entry| pc.checked_sub(entry)).is_some_and(|offset| offset < ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::maps;

    #[test]
    fn the_entry_is_in_the_code_of_the_program() {
        let Entry(Some(entry)) = Entry::of_process() else { panic!("no entry") };
        let program = std::fs::read_link("/proc/self/exe").expect("a link");
        let text = std::fs::read_to_string("/proc/self/maps").expect("a list");
        let mapping = maps::parse(&text).find(|mapping| (mapping.start..mapping.end).contains(&entry));
        let mapping = mapping.expect("it is mapped");
        assert!(mapping.executable && mapping.path == program.to_str().expect("text"), "{mapping:?}");
    }

    #[test]
    fn only_the_routine_is_the_root() {
        let pair = |key: u64, value: u64| [key.to_ne_bytes(), value.to_ne_bytes()].concat();
        let entry = Entry::parse(&[pair(3, 0x4000), pair(AT_ENTRY, 0x5000), pair(0, 0)].concat());
        let inside = [0x4fff, 0x5000, 0x5029, 0x503f, 0x5040].map(|pc| entry.contains(pc));
        assert_eq!(inside, [false, true, true, true, false]);
        let nothing = Entry::parse(&pair(3, 0x4000)[..15]);
        assert!(!nothing.contains(0) && !nothing.contains(u64::MAX));
    }
}
