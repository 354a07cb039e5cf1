//! From a scope offset to the methods inlined at that point, innermost first.
//!
//! A record is a row of UNSIGNED5 numbers: offset of the caller's record (0 for the outermost), index of the
//! method, bci + 1, then offsets of locals, expressions and monitors, which are not read.
//! Method indexes count from 1 into the nmethod's metadata array.
//! Sources: `code/scopeDesc.cpp`, `code/debugInfoRec.cpp`, JDK 11 to 25.

use super::debug_bytes::{DebugBytes, Part};
use super::unsigned5::{MAX_BYTES, Unsigned5};
use crate::frame::{Bci, Method};
use crate::limits::MAX_INLINE_DEPTH;
use crate::memory::Unreadable;

/// One logical frame of a physical one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope {
    pub(crate) method: Method,
    pub(crate) bci: Option<Bci>,
}

/// Bits of a packed scope for the bci plus two; 0 is none. A method has at most 65,535 bytecodes.
const BCI_BITS: u32 = 18;
/// Bit of a packed scope that is free for its user.
pub(crate) const PACKED_MARK: u64 = 1 << BCI_BITS;
/// First bit of the method, of which the lowest three are left out.
const METHOD_SHIFT: u32 = BCI_BITS + 1;
/// Least of the numbers that a compiler of JVMCI writes in place of a bci, for states before, after and between
/// bytecodes; the greatest is -2 (`jdk.vm.ci.code.BytecodeFrame`, JDK 11 to 25).
const LEAST_WITHOUT_BYTECODE: i32 = -6;
/// End of the addresses at which a method may lie: user space of x86-64 and of aarch64 ends at or below.
const METHODS_END: u64 = 1 << 48;

impl Scope {
    /// The scope in eight bytes; `None` if no compiler writes it.
    pub(crate) fn pack(self) -> Option<u64> {
        let bci = match self.bci {
            Some(Bci(bci)) => u64::try_from(bci.checked_add(2)?).ok().filter(|&bci| bci != 0)?,
            None => 0,
        };
        let Method(method) = self.method;
        let fits = method < METHODS_END && method.is_multiple_of(8) && bci >> BCI_BITS == 0;
        fits.then_some((method >> 3) << METHOD_SHIFT | bci)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let bci = (packed & ((1 << BCI_BITS) - 1)) as i32;
        let bci = if bci == 0 { None } else { Some(Bci(bci - 2)) };
        Self { method: Method((packed >> METHOD_SHIFT) << 3), bci }
    }
}

/// Why a chain of scopes could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScopeError {
    Unreadable(u64),
    /// Offsets, indexes or numbers that no compiler writes.
    Malformed,
}

impl From<Unreadable> for ScopeError {
    fn from(Unreadable(address): Unreadable) -> Self {
        Self::Unreadable(address)
    }
}

/// Calls `emit` for each scope from the one at `offset` outwards; returns the outermost method.
pub(crate) fn decode(
    unsigned5: Unsigned5,
    debug: &mut impl DebugBytes,
    offset: u32,
    mut emit: impl FnMut(Scope) -> Result<(), ScopeError>,
) -> Result<Method, ScopeError> {
    let mut offset = u64::from(offset);
    for _ in 0..MAX_INLINE_DEPTH {
        let left = debug.size(Part::Scopes).checked_sub(offset).ok_or(ScopeError::Malformed)?;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(3 * MAX_BYTES);
        let record = debug.get(Part::Scopes, offset, length)?;
        let (sender, index, bci) = three(unsigned5, record).ok_or(ScopeError::Malformed)?;
        let slot = u64::from(index.checked_sub(1).ok_or(ScopeError::Malformed)?) * 8;
        let entry = debug.get(Part::Metadata, slot, 8)?;
        let method = entry.try_into().map(u64::from_ne_bytes).map_err(|_| ScopeError::Malformed)?;
        if method == 0 || !method.is_multiple_of(8) {
            return Err(ScopeError::Malformed);
        }
        let method = Method(method);
        let bci = bci.cast_signed().wrapping_sub(1);
        let is_at_bytecode = !(LEAST_WITHOUT_BYTECODE..-1).contains(&bci);
        emit(Scope { method, bci: is_at_bytecode.then_some(Bci(bci)) })?;
        if sender == 0 {
            return Ok(method);
        }
        offset = u64::from(sender);
    }
    Err(ScopeError::Malformed)
}

fn three(unsigned5: Unsigned5, record: &[u8]) -> Option<(u32, u32, u32)> {
    let (first, length) = unsigned5.read(record)?;
    let record = record.get(length..)?;
    let (second, length) = unsigned5.read(record)?;
    let (third, _) = unsigned5.read(record.get(length..)?)?;
    Some((first, second, third))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Records of scopes, and one method.
    struct Records(Vec<u8>);

    impl DebugBytes for Records {
        fn size(&self, part: Part) -> u64 {
            if part == Part::Scopes { self.0.len() as u64 } else { 0 }
        }

        fn get(&mut self, part: Part, offset: u64, length: usize) -> Result<&[u8], Unreadable> {
            let bytes = if part == Part::Scopes { &self.0[..] } else { &[0x40, 0, 0, 0, 0, 0, 0, 0] };
            let there = bytes.get(offset as usize..).and_then(|rest| rest.get(..length));
            there.ok_or(Unreadable(offset))
        }

        fn number(&mut self, _part: Part, offset: u64) -> Result<i32, Unreadable> {
            Err(Unreadable(offset))
        }

        fn entries_at_once(&self) -> u64 {
            1
        }
    }

    /// Appends a number as JDK 17 does.
    fn write(bytes: &mut Vec<u8>, mut value: u32) {
        for _ in 1..MAX_BYTES {
            if value < 192 {
                break;
            }
            let digit = 192 + (value - 192) % 64;
            bytes.push(digit as u8);
            value = (value - digit) >> 6;
        }
        bytes.push(value as u8);
    }

    #[test]
    fn numbers_of_jvmci_are_no_bytecodes() {
        let decoded = |bci: i32| {
            let mut records = Records(Vec::from([0xff]));
            for number in [0, 1, bci.wrapping_add(1).cast_unsigned()] {
                write(&mut records.0, number);
            }
            let mut found = None;
            let root = decode(Unsigned5::of_jdk(17), &mut records, 1, |scope| {
                found = Some(scope.bci);
                scope.pack().map(|_| ()).ok_or(ScopeError::Malformed)
            });
            root.map(|root| (root, found))
        };
        let method = Method(0x40);
        for bci in [-1, 0, 7, 65_535] {
            assert_eq!(decoded(bci), Ok((method, Some(Some(Bci(bci))))));
        }
        for bci in -6..=-2 {
            assert_eq!(decoded(bci), Ok((method, Some(None))), "{bci}");
        }
        for bci in [-7, i32::MIN, 1 << BCI_BITS] {
            assert_eq!(decoded(bci), Err(ScopeError::Malformed), "{bci}");
        }
    }

    #[test]
    fn packed_scopes_are_the_same_and_impossible_ones_are_refused() {
        let scope = |method, bci: Option<i32>| Scope { method: Method(method), bci: bci.map(Bci) };
        for bci in [None, Some(-1), Some(0), Some(1), Some(65_535)] {
            for method in [8, 0x7fff_ffff_fff8, METHODS_END - 8] {
                let packed = scope(method, bci).pack().unwrap();
                assert_eq!(Scope::unpack(packed), scope(method, bci));
            }
        }
        for (method, bci) in
            [(9, 0), (METHODS_END, 0), (8, -2), (8, 1 << BCI_BITS), (8, i32::MAX), (8, i32::MIN)]
        {
            assert_eq!(scope(method, Some(bci)).pack(), None);
        }
    }
}
