//! From a scope offset to the methods inlined at that point, innermost first.
//!
//! A record is a row of UNSIGNED5 numbers: offset of the caller's record (0 for the outermost), index of the
//! method, bci + 1, then offsets of locals, expressions and monitors, which are not read.
//! Method indexes count from 1 into the nmethod's metadata array.
//! Sources: `code/scopeDesc.cpp`, `code/debugInfoRec.cpp`, JDK 11 to 25.

use super::nmethod::DebugInfo;
use super::unsigned5::{MAX_BYTES, Unsigned5};
use crate::frame::{Bci, Method};
use crate::limits::MAX_INLINE_DEPTH;
use crate::memory::{Memory, Unreadable, Window};

/// One logical frame of a physical one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope {
    pub(crate) method: Method,
    pub(crate) bci: Option<Bci>,
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

/// Block buffers for the two regions a decode reads.
#[derive(Clone, Debug)]
pub(crate) struct ScopeWindows {
    pub(crate) scopes: Window<1024>,
    pub(crate) metadata: Window<512>,
}

impl ScopeWindows {
    pub(crate) const EMPTY: Self = Self { scopes: Window::EMPTY, metadata: Window::EMPTY };

    pub(crate) fn clear(&mut self) {
        self.scopes.clear();
        self.metadata.clear();
    }
}

/// Records of callers are written before those of callees, so most of a block should lie below.
const LEAD: u64 = 768;

/// Calls `emit` for each scope from the one at `offset` outwards; returns the outermost method.
pub(crate) fn decode<M: Memory + ?Sized>(
    unsigned5: Unsigned5,
    memory: &M,
    windows: &mut ScopeWindows,
    debug: &DebugInfo,
    offset: u32,
    mut emit: impl FnMut(Scope) -> Result<(), ScopeError>,
) -> Result<Method, ScopeError> {
    let mut offset = u64::from(offset);
    for _ in 0..MAX_INLINE_DEPTH {
        let at = debug.scopes.0.wrapping_add(offset);
        let left = debug.scopes.1.checked_sub(at).ok_or(ScopeError::Malformed)?;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(3 * MAX_BYTES);
        let record = windows.scopes.get(memory, at, length, debug.scopes, LEAD)?;
        let (sender, index, bci) = three(unsigned5, record).ok_or(ScopeError::Malformed)?;
        let slot = u64::from(index.checked_sub(1).ok_or(ScopeError::Malformed)?) * 8;
        let entry =
            windows.metadata.get(memory, debug.metadata.0.wrapping_add(slot), 8, debug.metadata, 128)?;
        let method = entry.try_into().map(u64::from_ne_bytes).map_err(|_| ScopeError::Malformed)?;
        if method == 0 || !method.is_multiple_of(8) {
            return Err(ScopeError::Malformed);
        }
        let method = Method(method);
        emit(Scope { method, bci: Some(Bci(bci.cast_signed().wrapping_sub(1))) })?;
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
