//! Reads the memory of several methods' names ahead.
//!
//! Problem: the names of a method lie in half a dozen objects, each found through the one before, and a stack of new
//! code has many new methods: read one after the other, each object is a system call.
//! Approach: the objects of all methods are read level by level, each level at once, through [`Memory::prepare`].
//! Invariant: nothing is concluded from what is read here: [`HotSpot::method`] reads and checks the same fields again.

use super::HotSpot;
use super::layout::SourceFileIndex;
use super::method::Symbol;
use crate::frame::Method;
use crate::memory::{Memory, at};

/// Most methods at once, so that the lines of a level are few enough for one read.
pub const METHODS_AHEAD: usize = 8;

/// Addresses of one level, at most three for each method.
#[derive(Default)]
struct Level {
    addresses: [u64; 3 * METHODS_AHEAD],
    count: usize,
}

impl Level {
    fn add(&mut self, address: u64) {
        if let Some(place) = self.addresses.get_mut(self.count) {
            *place = address;
            self.count += 1;
        }
    }

    /// Reads the level, and begins the next one.
    fn read<M: Memory + ?Sized>(&mut self, memory: &M) {
        memory.prepare(self.addresses.get(..self.count).unwrap_or_default());
        self.count = 0;
    }
}

/// Findings of one method; 0 if unknown.
#[derive(Clone, Copy, Default)]
struct Found {
    method: u64,
    const_method: u64,
    pool: u64,
    holder: u64,
    /// Slots of the pool.
    name: u64,
    signature: u64,
}

impl HotSpot {
    /// Prepares the calls of [`HotSpot::method`] for up to [`METHODS_AHEAD`] methods, and of [`HotSpot::read_symbol`]
    /// for their symbols that are not known.
    pub fn prepare_names<M: Memory + ?Sized>(
        &self,
        memory: &M,
        methods: &[Method],
        is_known: impl Fn(Symbol) -> bool,
    ) {
        let layout = &self.layout.method;
        let pointer =
            |address: u64| memory.read_u64(address).ok().filter(|found| found.is_multiple_of(8)).unwrap_or(0);
        let index = |address: u64| u64::from(memory.read_u16(address).unwrap_or(0));
        let symbol = |slot: u64| Some(pointer(slot)).filter(|&found| !is_known(Symbol(found))).unwrap_or(0);
        let mut found = [Found::default(); METHODS_AHEAD];
        let found = found.get_mut(..methods.len().min(METHODS_AHEAD)).unwrap_or_default();
        let mut level = Level::default();
        for (one, method) in found.iter_mut().zip(methods) {
            one.method = method.0;
            level.add(one.method);
        }
        level.read(memory);
        for one in &mut *found {
            one.const_method = pointer(at(one.method, layout.const_method));
            level.add(one.const_method);
        }
        level.read(memory);
        for one in &mut *found {
            one.pool = pointer(at(one.const_method, layout.constants));
            let slot = |number: u64| one.pool.wrapping_add(layout.pool_header).wrapping_add(number * 8);
            let name = slot(index(at(one.const_method, layout.name_index)));
            let signature = slot(index(at(one.const_method, layout.signature_index)));
            (one.name, one.signature) = (name, signature);
            [one.pool, name, signature].into_iter().for_each(|address| level.add(address));
        }
        level.read(memory);
        for one in &mut *found {
            one.holder = pointer(at(one.pool, layout.pool_holder));
            let symbols = [symbol(one.name), symbol(one.signature)];
            [one.holder].into_iter().chain(symbols).for_each(|address| level.add(address));
        }
        level.read(memory);
        for one in &mut *found {
            level.add(symbol(at(one.holder, layout.klass_name)));
            let number = match layout.source_file {
                Some(SourceFileIndex::Pool(offset)) => index(at(one.pool, offset)),
                Some(SourceFileIndex::Klass(offset)) => index(at(one.holder, offset)),
                None => 0,
            };
            level.add(one.pool.wrapping_add(layout.pool_header).wrapping_add(number * 8));
        }
        level.read(memory);
    }
}
