//! Which instruction of compiled code was running when a thread was interrupted: the one before the pc, or the one at
//! it.
//!
//! Direct jumps are found in the code. C2 jumps through tables that lie in front of the code, among its constants
//! (`CodeBuffer::SECT_CONSTS` in `asm/codeBuffer.hpp`, `MachConstantNode` of `jumpXtnd` in `x86_64.ad`, JDK 11 to 25);
//! where the header of an nmethod keeps entries as addresses, these lie in front of the code as well.
//! Invariant: work is bounded, and code that cannot be read or is too far away counts as a jump.

use core::ops::Range;

use crate::cpu::{FAR_JUMP_BYTES, NEAR_JUMP_AFTER, NEAR_JUMP_BEFORE, has_far_jump, is_given_up};
use crate::hotspot::code_blob::CodeBlob;
use crate::memory::{Memory, Unreadable};

/// Code on either side of a pc that is searched; nearly all methods that C2 compiles are shorter.
const FAR_REACH: u64 = 64 << 10;
/// Bytes before the code that are searched: two tables of a `switch` with 200 cases.
const TABLE_REACH: u64 = 4096;

/// The instruction that was running when a thread was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Running {
    Before,
    /// The one at the pc, an access to memory that the interrupt has given up.
    AtPc,
    PerhapsJump,
}

/// Returns which instruction was running when a thread was interrupted at `pc`; `buffer` is for code, which is read in
/// blocks of its size.
pub(super) fn running<M: Memory + ?Sized>(
    memory: &M,
    blob: &CodeBlob,
    pc: u64,
    buffer: &mut [u8],
) -> Running {
    search(memory, blob, pc, buffer).unwrap_or(Running::PerhapsJump)
}

fn search<M: Memory + ?Sized>(
    memory: &M,
    blob: &CodeBlob,
    pc: u64,
    buffer: &mut [u8],
) -> Result<Running, Unreadable> {
    let (code, _) = code_around(blob, pc, NEAR_JUMP_BEFORE, NEAR_JUMP_AFTER);
    let refused = Unreadable(pc);
    let near =
        buffer.get_mut(..usize::try_from(code.end - code.start).map_err(|_| refused)?).ok_or(refused)?;
    memory.read(code.start, near)?;
    let place = usize::try_from(pc - code.start).map_err(|_| refused)?;
    let without_jump = match is_given_up(near, place) {
        None => return Ok(Running::PerhapsJump),
        Some(true) => Running::AtPc,
        Some(false) => Running::Before,
    };
    let (code, is_all) = code_around(blob, pc, FAR_REACH, FAR_REACH);
    if !is_all {
        return Ok(Running::PerhapsJump);
    }
    let overlap = FAR_JUMP_BYTES - 1;
    let jumps = |block: &[u8], start: u64| has_far_jump(block, start, pc);
    if any_block(memory, code, buffer, overlap, jumps)? {
        return Ok(Running::PerhapsJump);
    }
    let table = blob.address.max(blob.code_begin.saturating_sub(TABLE_REACH)) & !7..blob.code_begin & !7;
    let lists = |block: &[u8], _| block.as_chunks().0.iter().any(|word| u64::from_ne_bytes(*word) == pc);
    let is_listed = any_block(memory, table, buffer, 0, lists)?;
    Ok(if is_listed { Running::PerhapsJump } else { without_jump })
}

/// Returns the code of `blob` within these distances of `pc`, and whether it is all of it.
fn code_around(blob: &CodeBlob, pc: u64, before: u64, after: u64) -> (Range<u64>, bool) {
    let start = blob.code_begin.max(pc.saturating_sub(before)).min(pc);
    let end = blob.code_end.min(pc.saturating_add(after)).max(pc);
    (start..end, start == blob.code_begin && end == blob.code_end)
}

/// Returns whether `found` holds for a block of the bytes at `range`; each block repeats the last `overlap` bytes of
/// the one before.
fn any_block<M: Memory + ?Sized>(
    memory: &M,
    range: Range<u64>,
    buffer: &mut [u8],
    overlap: usize,
    found: impl Fn(&[u8], u64) -> bool,
) -> Result<bool, Unreadable> {
    let size = buffer.len();
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).unwrap_or(size).min(size);
        let block = buffer.get_mut(..length).ok_or(Unreadable(at))?;
        memory.read(at, block)?;
        if found(block, at) {
            return Ok(true);
        }
        if length < size {
            break;
        }
        at = at.saturating_add(size.saturating_sub(overlap) as u64);
    }
    Ok(false)
}
