//! The stack that the entry code of a compiled method has taken, and frames that keep their own size.
//!
//! Value classes (JDK 28 and later) give compiled code several entries, one after the other: callers pass the fields
//! of value objects in registers and on the stack, or references. Where the fields need more room, the entry for
//! references extends the stack, and the frame ends further up than its size says. Such code keeps the size of each
//! frame in the frame:
//!
//! ```text
//! entry:      [bang]  push rbp  sub rsp, n  mov [rsp + n - 8], n   barrier   add rsp, n  pop rbp
//!             push rbp  sub rsp, room   move arguments   sub rsp, n + 8  mov [rsp + n], rbp
//!             mov [rsp + n - 8], n + 8 + room   jmp body
//! last entry: [bang]  push rbp  sub rsp, n  mov [rsp + n - 8], n   barrier
//! body:       ...   add rsp, [rsp + n - 8]   pop rbp   poll   ret
//! ```
//!
//! An extended frame has no return address at the usual place: it is above the room, with the saved rbp that was
//! pushed first.
//!
//! Sources: machine code and `frame::repair_sender_sp`, `MacroAssembler::extend_stack_for_value_args` and
//! `MacroAssembler::remove_frame` in libjvm of 28-ea+18; `scalarized_entry` and `build_frame_helper` in
//! `cpu/x86/c1_MacroAssembler_x86.cpp` of the Valhalla repository, 2025.

use super::instruction::{Flow, decode};
use crate::cpu::rules::Taken;

/// Branches whose targets are remembered at once: two for each value object that is passed, and no code has them all
/// open.
const MAX_BRANCHES: usize = 64;

/// Bytes from the place of the kept size to the end of the frame: itself, the saved fp and the return address.
const KEPT_SIZE_BELOW_END: u64 = 24;
/// Bytes that the kept size leaves out: the saved fp and the return address.
const KEPT_SIZE_WITHOUT: u64 = 16;
/// Largest frame accepted with the room of its arguments, of which there are at most 255.
const MAX_FRAME_BYTES: u64 = 1 << 20;

impl Taken {
    const NOTHING: Self = Self { bytes: 0, is_fp_saved: false };

    fn push(self, saves_fp: bool) -> Self {
        Self {
            bytes: self.bytes.saturating_add(8),
            is_fp_saved: self.is_fp_saved || saves_fp && self.bytes == 0,
        }
    }

    fn add(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    fn remove(self, bytes: u64) -> Option<Self> {
        let bytes = self.bytes.checked_sub(bytes)?;
        Some(Self { bytes, is_fp_saved: self.is_fp_saved && bytes != 0 })
    }

    /// The state after the instruction at the start of `code`; `None` if it moves sp in a way that is not known.
    fn after(self, code: &[u8]) -> Option<Self> {
        let long = |a: u8, b: u8, c: u8, d: u8| u64::from(u32::from_le_bytes([a, b, c, d]));
        match *code {
            [0x55, ..] => Some(self.push(true)),
            // push reg; pushf.
            [0x50..=0x57 | 0x9c, ..] | [0x41, 0x50..=0x57, ..] => Some(self.push(false)),
            [0x58..=0x5f | 0x9d, ..] | [0x41, 0x58..=0x5f, ..] => self.remove(8),
            [0x48, 0x83, 0xec, bytes @ 0..=0x7f, ..] => Some(self.add(u64::from(bytes))),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => Some(self.add(long(a, b, c, d))),
            [0x48, 0x83, 0xc4, bytes @ 0..=0x7f, ..] => self.remove(u64::from(bytes)),
            [0x48, 0x81, 0xc4, a, b, c, d, ..] => self.remove(long(a, b, c, d)),
            // and rsp, n; leave; mov rsp, reg.
            [0x48, 0x81 | 0x83, 0xe4, ..] | [0xc9, ..] | [0x48 | 0x49, 0x8b, 0xe0..=0xe7, ..] => None,
            // mov [rsp + n], rbp.
            [0x48, 0x89, 0x6c, 0x24, place, ..] => Some(self.store_fp(u64::from(place))),
            [0x48, 0x89, 0xac, 0x24, a, b, c, d, ..] => Some(self.store_fp(long(a, b, c, d))),
            _ => Some(self),
        }
    }

    fn store_fp(self, place: u64) -> Self {
        let is_record = place.checked_add(8) == Some(self.bytes);
        Self { is_fp_saved: self.is_fp_saved || is_record, ..self }
    }
}

/// The stack that the entry code before `pc` has taken; `None` if that is not known. `pc` is an index into `code`, the
/// code of a method from its first instruction on.
///
/// Control is followed from the top down: an instruction behind a jump has the state of the branches that lead there,
/// and without one it is another entry.
pub(crate) fn taken_at(code: &[u8], pc: usize) -> Option<Taken> {
    let mut branches = Branches { all: [(0, Taken::NOTHING); MAX_BRANCHES], count: 0 };
    let (mut at, mut state) = (0, Some(Taken::NOTHING));
    while at < pc {
        let here = state.or(branches.to(at)).unwrap_or(Taken::NOTHING);
        let rest = code.get(at..)?;
        let instruction = decode(rest)?;
        at = at.checked_add(instruction.length)?;
        state = Some(here.after(rest)?);
        if let Flow::Branch(distance) | Flow::Jump(distance) = instruction.flow {
            branches.note(at, distance, here)?;
        }
        if matches!(instruction.flow, Flow::Jump(_) | Flow::Indirect | Flow::Away) {
            state = None;
        }
    }
    (at == pc).then(|| state.or(branches.to(pc)).unwrap_or(Taken::NOTHING))
}

/// Forward branches with the state at their targets.
struct Branches {
    all: [(usize, Taken); MAX_BRANCHES],
    count: usize,
}

impl Branches {
    fn to(&self, target: usize) -> Option<Taken> {
        self.all.get(..self.count)?.iter().find_map(|&(to, taken)| (to == target).then_some(taken))
    }

    /// Notes a branch by this distance from `next`; `None` if there are too many.
    fn note(&mut self, next: usize, distance: i32, taken: Taken) -> Option<()> {
        let Some(target) = usize::try_from(distance).ok().and_then(|distance| next.checked_add(distance))
        else {
            return Some(());
        };
        // Those that were passed are not needed any more.
        let place = match self.all.get(..self.count)?.iter().position(|&(to, _)| to < next) {
            Some(place) => place,
            None => self.count,
        };
        *self.all.get_mut(place)? = (target, taken);
        self.count = self.count.max(place.checked_add(1)?);
        Some(())
    }
}

/// Returns whether code keeps the size of its frame, of `size` bytes unless it is extended, in the frame; `before` is
/// the code up to the place where the frame is complete.
pub(crate) fn keeps_frame_size(before: &[u8], size: u64) -> bool {
    let (Some(place), Some(kept)) =
        (size.checked_sub(KEPT_SIZE_BELOW_END), size.checked_sub(KEPT_SIZE_WITHOUT))
    else {
        return false;
    };
    let Ok(kept) = u32::try_from(kept) else { return false };
    let is_store = |at: usize| {
        let (stored_at, value) = match before.get(at..) {
            Some(&[0x48, 0xc7, 0x44, 0x24, place @ 0..=0x7f, a, b, c, d, ..]) => {
                (u64::from(place), [a, b, c, d])
            }
            Some(&[0x48, 0xc7, 0x84, 0x24, e, f, g, h, a, b, c, d, ..]) => {
                (u64::from(u32::from_le_bytes([e, f, g, h])), [a, b, c, d])
            }
            _ => return false,
        };
        stored_at == place && u32::from_le_bytes(value) == kept
    };
    (0..before.len()).any(is_store)
}

/// Bytes of a complete frame that keeps its size and has `size` bytes unless it is extended; `word` reads the stack
/// at a distance from the frame's sp. `None` if what it keeps cannot be a size.
pub(crate) fn kept_frame_size(size: u64, word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let kept = word(size.checked_sub(KEPT_SIZE_BELOW_END)?)?;
    let bytes = kept.checked_add(KEPT_SIZE_WITHOUT)?;
    let room = bytes.checked_sub(size)?;
    (room.is_multiple_of(16) && bytes < MAX_FRAME_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Parts of `P$Holder.<init>(V1, V1)`, compiled by C2 of 28-ea+18: the entry for a receiver whose class is known
    /// with arguments as fields, the entry for references, and the last entry. Distances of jumps are those of this
    /// shorter code.
    fn code() -> (Vec<u8>, Vec<usize>) {
        let parts: [&[u8]; 33] = [
            &[0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff], // 0: mov [rsp - 0x14000], eax
            &[0x55],                                     // 7: push rbp
            &[0x48, 0x83, 0xec, 0x10],                   // 8: sub rsp, 0x10
            &[0x48, 0xc7, 0x44, 0x24, 0x08, 0x10, 0, 0, 0], // 12: mov [rsp + 8], 0x10
            &[0x66, 0x66, 0x90],                         // 21: nop
            &[0x41, 0x81, 0x7f, 0x20, 3, 0, 0, 0],       // 24: cmp [r15 + 0x20], 3
            &[0x0f, 0x85, 0x6c, 0x02, 0, 0],             // 32: jne barrier
            &[0x48, 0x83, 0xc4, 0x10],                   // 38: add rsp, 0x10
            &[0x5d],                                     // 42: pop rbp
            &[0x55],                                     // 43: push rbp
            &[0x48, 0x83, 0xec, 0x48],                   // 44: sub rsp, 0x48
            &[0x48, 0x85, 0xc9],                         // 48: test rcx, rcx
            &[0x0f, 0x84, 0x0a, 0, 0, 0],                // 51: je 67
            &[0x4c, 0x89, 0x6c, 0x24, 0x38],             // 57: mov [rsp + 0x38], r13
            &[0xe9, 0x09, 0, 0, 0],                      // 62: jmp 76
            &[0x48, 0xc7, 0x44, 0x24, 0x38, 0, 0, 0, 0], // 67: mov [rsp + 0x38], 0
            &[0x33, 0xd2],                               // 76: xor edx, edx
            &[0x48, 0x83, 0xec, 0x18],                   // 78: sub rsp, 0x18
            &[0x48, 0x89, 0x6c, 0x24, 0x10],             // 82: mov [rsp + 0x10], rbp
            &[0x48, 0xc7, 0x44, 0x24, 0x08, 0x60, 0, 0, 0], // 87: mov [rsp + 8], 0x60
            &[0xe9, 0x2b, 0, 0, 0],                      // 96: jmp 144
            &[0x90],                                     // 101: nop
            &[0x0f, 0x1f, 0x40, 0x00],                   // 102: nop
            &[0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff], // 106: mov [rsp - 0x14000], eax
            &[0x55],                                     // 113: push rbp
            &[0x48, 0x83, 0xec, 0x10],                   // 114: sub rsp, 0x10
            &[0x48, 0xc7, 0x44, 0x24, 0x08, 0x10, 0, 0, 0], // 118: mov [rsp + 8], 0x10
            &[0x66, 0x66, 0x90],                         // 127: nop
            &[0x41, 0x81, 0x7f, 0x20, 3, 0, 0, 0],       // 130: cmp [r15 + 0x20], 3
            &[0x0f, 0x85, 0xec, 0, 0, 0],                // 138: jne barrier
            &[0x45, 0x0f, 0xb6, 0xd1],                   // 144: movzx r10d, r9b
            &[0x48, 0x03, 0x64, 0x24, 0x08],             // 148: add rsp, [rsp + 8]
            &[0x5d],                                     // 153: pop rbp
        ];
        let starts = parts.iter().scan(0, |end, part| Some(core::mem::replace(end, *end + part.len())));
        (parts.concat(), starts.collect())
    }

    /// Offset at which the frame of [`code`] is complete, and its size unless it is extended.
    const COMPLETE: usize = 144;
    const SIZE: u64 = 0x20;

    #[test]
    fn each_entry_takes_stack_of_its_own() {
        let (code, starts) = code();
        let taken = |pc| taken_at(&code, pc).map(|taken| (taken.bytes, taken.is_fp_saved));
        let expected = |pc: usize| match pc {
            0..=7 | 43 | 101..=113 => (0, false),
            8 | 42 | 44 | 114 => (8, true),
            12..=38 | 118..=143 => (0x18, true),
            48..=78 => (0x50, true),
            82..=96 => (0x68, true),
            _ => panic!("{pc}"),
        };
        for &pc in starts.iter().filter(|&&pc| pc < COMPLETE) {
            assert_eq!(taken(pc), Some(expected(pc)), "{pc}");
        }
        assert_eq!(taken(9), None, "the middle of an instruction");
        assert_eq!(taken_at(&[0x48, 0x83, 0xe4, 0xf0, 0x90], 4), None, "and rsp, -16");
        assert_eq!(taken_at(&[0x5d, 0x90], 1), None, "more is popped than was pushed");
    }

    #[test]
    fn fp_is_live_until_it_is_saved() {
        // C2 without stack bang: sub rsp, 0x18; mov [rsp + 0x10], rbp.
        let code = [0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x90];
        assert_eq!(taken_at(&code, 4), Some(Taken { bytes: 0x18, is_fp_saved: false }));
        assert_eq!(taken_at(&code, 9), Some(Taken { bytes: 0x18, is_fp_saved: true }));
    }

    #[test]
    fn code_that_keeps_the_size_of_its_frame_stores_it() {
        let (code, _) = code();
        assert!(keeps_frame_size(&code[..COMPLETE], SIZE));
        assert!(!keeps_frame_size(&code[..COMPLETE], SIZE + 16), "another frame");
        assert!(!keeps_frame_size(&code[..12], SIZE) && !keeps_frame_size(&code, 0));
        // C1's reset of the word for deoptimisation: mov [rsp + 0x70], 0.
        assert!(!keeps_frame_size(&[0x48, 0xc7, 0x44, 0x24, 0x70, 0, 0, 0, 0], 0x88));
        // From `P.rec`: mov [rsp + 0xa8], 0xb0.
        let long = [0x48, 0xc7, 0x84, 0x24, 0xa8, 0, 0, 0, 0xb0, 0, 0, 0];
        assert!(keeps_frame_size(&long, 0xc0));
    }

    #[test]
    fn an_extended_frame_ends_further_up() {
        let of = |kept: u64| kept_frame_size(SIZE, |at| (at == 8).then_some(kept));
        assert_eq!(of(0x10), Some(SIZE), "not extended");
        assert_eq!(of(0x60), Some(SIZE + 0x50));
        assert_eq!((of(0x58), of(8), of(u64::MAX), of(1 << 20)), (None, None, None, None));
        assert_eq!(kept_frame_size(SIZE, |_| None), None);
    }
}
