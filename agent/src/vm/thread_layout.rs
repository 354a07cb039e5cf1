//! Checks the fields of a `JavaThread` that signal handlers follow, before the first timer.
//!
//! Problem: handlers read these fields by plain loads, and a wrong offset would make them follow a number that is no
//! pointer.
//! Approach: read them once, fault-tolerantly, in the thread that starts the profile, whose stack pointer is known.

use stackwalk::{Memory, ThreadOffsets};

/// Returns the first field of the running thread at `thread` that is not as expected; `sp` is its stack pointer.
pub fn wrong_field(
    memory: &impl Memory,
    thread: u64,
    sp: u64,
    offsets: &ThreadOffsets,
) -> Option<&'static str> {
    let word = |offset: u32| memory.read_u64(thread.wrapping_add(u64::from(offset))).ok();
    // Null, or an address that can be read.
    let is_pointer = |offset: u32, field: u32| match word(offset) {
        Some(0) => true,
        Some(pointer) => memory.read_u64(pointer.wrapping_add(u64::from(field))).is_ok(),
        None => false,
    };
    let has_stack = || {
        let (base, size) = (word(offsets.stack_base)?, word(offsets.stack_size)?);
        (base.checked_sub(size)? <= sp && sp < base).then_some(())
    };
    if has_stack().is_none() {
        return Some("stack bounds");
    }
    if !is_pointer(offsets.vframe_array_head, offsets.deoptimized_sp) {
        return Some("vframe array");
    }
    if !offsets.cont_entry.is_none_or(|offset| is_pointer(offset, 0)) {
        return Some("continuation entry");
    }
    None
}

#[cfg(test)]
mod tests {
    use stackwalk::StackCopy;

    use super::*;

    const THREAD: u64 = 0x1000;

    /// A thread with these words, from its address on: stack base, stack size, vframe array, continuation entry.
    fn check(words: [u64; 4]) -> Option<&'static str> {
        let offsets = ThreadOffsets {
            stack_base: 0,
            stack_size: 8,
            vframe_array_head: 16,
            cont_entry: Some(24),
            ..ThreadOffsets::default()
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        wrong_field(&StackCopy::new(THREAD, &bytes), THREAD, 0x7000, &offsets)
    }

    #[test]
    fn pointers_are_null_or_readable() {
        assert_eq!(check([0x8000, 0x4000, 0, 0]), None);
        assert_eq!(check([0x8000, 0x4000, THREAD, THREAD]), None);
        assert_eq!(check([0x8000, 0x4000, 0xdead_0000, 0]), Some("vframe array"));
        assert_eq!(check([0x8000, 0x4000, 0, 3]), Some("continuation entry"));
        assert_eq!(check([0x6000, 0x4000, 0, 0]), Some("stack bounds"), "above the stack");
        assert_eq!(check([0x8000, 0x800, 0, 0]), Some("stack bounds"), "below it");
        assert_eq!(check([0x100, 0x4000, 0, 0]), Some("stack bounds"), "no address");
    }
}
