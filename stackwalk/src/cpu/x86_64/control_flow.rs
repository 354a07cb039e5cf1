//! The ways that control can take from one instruction to another before it returns to the caller.
//!
//! All direct jumps and calls are followed, both ways of each branch; what a call leads to counts like what follows it.
//! Invariant: work and memory are bounded, and the answer is "no" only if all ways were followed to their end.
//! Source: encodings of jumps and calls as in `instruction.rs`.

use super::instruction::{Flow, MAX_INSTRUCTION_BYTES, decode};

/// Pieces of code without a jump between them that are followed.
const MAX_RUNS: usize = 64;
/// Targets of jumps that wait to be followed.
const MAX_PENDING: usize = 64;
/// Instructions that are decoded: the longest routines of HotSpot have some 5,000.
const MAX_INSTRUCTIONS: usize = 8192;

/// Returns whether control can get from the instruction at `from` to that at `to`; `None` if that is not known, because
/// it depends on an indirect jump, or because there is too much code, or some that cannot be read or decoded.
///
/// `code` fills its buffer with the code at a place and returns the number of bytes: 0 where the code has ended that
/// may lead on, `None` where it cannot be read.
pub(crate) fn leads_to(
    from: u32,
    to: u32,
    mut code: impl FnMut(u32, &mut [u8; MAX_INSTRUCTION_BYTES]) -> Option<usize>,
) -> Option<bool> {
    let (mut runs, mut pending) = ([(0, 0); MAX_RUNS], [0; MAX_PENDING]);
    let (mut run_count, mut pending_count, mut instructions) = (0, 0, 0);
    let mut is_known = true;
    let mut next = Some(from);
    while let Some(start) = next {
        let followed = runs.get(..run_count)?;
        let is_new = !followed.iter().any(|&(first, end)| (first..end).contains(&start));
        // Where a run that was followed begins, this one ends.
        let known = followed.iter().map(|&(first, _)| first).filter(|&first| first > start).min();
        let mut at = start;
        while is_new && known.is_none_or(|known| at < known) {
            if at == to {
                return Some(true);
            }
            let mut bytes = [0; MAX_INSTRUCTION_BYTES];
            let length = code(at, &mut bytes);
            if length == Some(0) {
                break;
            }
            let Some(found) = length.and_then(|length| decode(bytes.get(..length)?)) else {
                is_known = false;
                break;
            };
            instructions += 1;
            if instructions > MAX_INSTRUCTIONS {
                return None;
            }
            at = at.checked_add(u32::try_from(found.length).ok()?)?;
            let jumped = match found.flow {
                Flow::Branch(distance) | Flow::Jump(distance) => at.checked_add_signed(distance),
                Flow::Next => called(&bytes).and_then(|distance| at.checked_add_signed(distance)),
                Flow::Indirect | Flow::Away => None,
            };
            if let Some(target) = jumped {
                *pending.get_mut(pending_count)? = target;
                pending_count += 1;
            }
            is_known &= found.flow != Flow::Indirect;
            if matches!(found.flow, Flow::Jump(_) | Flow::Indirect | Flow::Away) {
                break;
            }
        }
        if is_new {
            *runs.get_mut(run_count)? = (start, at.max(start.saturating_add(1)));
            run_count += 1;
        }
        next = pending_count.checked_sub(1).and_then(|last| pending.get(last).copied());
        pending_count = pending_count.saturating_sub(1);
    }
    is_known.then_some(false)
}

/// The distance of a direct call.
fn called(code: &[u8; MAX_INSTRUCTION_BYTES]) -> Option<i32> {
    match *code {
        [0xe8, a, b, c, d, ..] => Some(i32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether `from` leads to `to` in this code, which ends with its last byte. It cannot be read from 60 on.
    fn leads(code: &[u8], from: u32, to: u32) -> Option<bool> {
        leads_to(from, to, |at, bytes| {
            let rest = code.get(at as usize..).unwrap_or_default();
            let length = rest.len().min(bytes.len());
            bytes[..length].copy_from_slice(&rest[..length]);
            (at != 60).then_some(length)
        })
    }

    /// At 0 `test eax, eax; je 8; nop; ret`, at 8 `dec eax; jne 8; jmp 20`, at 16 `nop; ret`, at 20 `call 27; ret`,
    /// at 27 `nop; ret`, at 30 `nop; jmp rax`, at 34 `nop` and no instruction, at 38 `jmp 60`.
    const CODE: [u8; 40] = [
        0x85, 0xc0, 0x74, 0x04, 0x90, 0xc3, 0x90, 0xcc, // 0
        0xff, 0xc8, 0x75, 0xfc, 0xeb, 0x06, 0xcc, 0xcc, // 8
        0x90, 0xc3, 0xcc, 0xcc, // 16
        0xe8, 0x02, 0, 0, 0, 0xc3, 0xcc, // 20
        0x90, 0xc3, 0xcc, // 27
        0x90, 0xff, 0xe0, 0xcc, // 30
        0x90, 0x06, 0xcc, 0xcc, // 34
        0xeb, 0x14, // 38
    ];

    #[test]
    fn jumps_branches_and_calls_are_followed() {
        for to in [0, 2, 4, 5, 8, 10, 12, 20, 25, 27, 28] {
            assert_eq!(leads(&CODE, 0, to), Some(true), "{to}");
        }
        for to in [6, 7, 14, 16, 17, 26, 29, 30, 34] {
            assert_eq!(leads(&CODE, 0, to), Some(false), "{to}");
        }
        assert_eq!(leads(&CODE, 16, 17), Some(true));
        assert_eq!(leads(&CODE, 16, 18), Some(false), "behind a return");
        assert_eq!(leads(&CODE, 8, 4), Some(false), "backwards");
    }

    #[test]
    fn the_middle_of_an_instruction_is_not_reached() {
        assert_eq!(leads(&CODE, 0, 1), Some(false));
        assert_eq!(leads(&CODE, 0, 22), Some(false));
    }

    #[test]
    fn unknown_code_on_a_way_gives_no_answer() {
        assert_eq!(leads(&CODE, 30, 31), Some(true), "before the jump");
        assert_eq!(leads(&CODE, 30, 0), None, "through a register");
        assert_eq!(leads(&CODE, 34, 0), None, "no instruction");
        assert_eq!(leads(&CODE, 38, 0), None, "code that cannot be read");
        assert_eq!(leads(&[0x90; 10_000], 0, 9_999), None, "too much");
        assert_eq!(leads(&[0x74, 0].repeat(100), 0, 500), None, "too many branches");
        assert_eq!(leads(&CODE, 100, 0), Some(false), "outside");
    }
}
