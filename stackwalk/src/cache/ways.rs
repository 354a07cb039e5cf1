//! Ways through routines that were looked up. The VM neither frees nor changes routines.

use alloc::boxed::Box;
use core::cell::Cell;

/// Places, each for one of the ways that share it.
const WAYS: usize = 256;

/// Whether control may get from `entry`, where a routine begins, to the instruction at `to`. The default, with address
/// 0, answers for no routine.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    entry: u64,
    to: u64,
    exists: bool,
}

#[derive(Debug)]
pub(super) struct Ways(Box<[Cell<Way>; WAYS]>);

impl Ways {
    /// None is known.
    pub(super) fn new() -> Self {
        Self(Box::new(core::array::from_fn(|_| Cell::default())))
    }

    /// Returns whether there is a way, as remembered or as `search` returns. `None`, if that is not known, is not
    /// remembered.
    pub(super) fn find(&self, entry: u64, to: u64, search: impl FnOnce() -> Option<bool>) -> Option<bool> {
        let place = usize::try_from((to ^ entry.rotate_left(7)) % WAYS as u64).unwrap_or(0);
        let way = self.0.get(place);
        let known = way.map(Cell::get).filter(|known| (known.entry, known.to) == (entry, to));
        if let Some(Way { exists, .. }) = known {
            return Some(exists);
        }
        let exists = search()?;
        if let Some(way) = way {
            way.set(Way { entry, to, exists });
        }
        Some(exists)
    }
}
