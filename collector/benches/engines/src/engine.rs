//! What the store asks of an engine.

use std::ops::Range;
use std::path::Path;

use crate::load::{Table, Transaction};

/// Memory that each engine may use for pages: what the store gave redb.
pub const CACHE_BYTES: usize = 64 << 20;

/// An open database.
pub trait Engine {
    /// Writes a transaction; when this returns, it survives the loss of power.
    fn write(&mut self, transaction: &Transaction);

    /// Visits the values of a table whose keys begin with `prefix` and go on in `range`; of one session only, if one is
    /// given, which is the number behind that in all keys but those of sessions themselves.
    fn read(
        &self,
        table: Table,
        prefix: &[u64],
        range: Range<u64>,
        session: Option<u64>,
        visit: &mut dyn FnMut(&[u8]),
    );

    /// Removes all single samples, as retention does, and gives space back to the file system.
    fn lower(&mut self);
}

/// How to open one.
pub struct Candidate {
    pub name: &'static str,
    pub open: fn(&Path) -> Box<dyn Engine>,
}
