//! Reads of memory in walks through code that earlier walks went through.
//!
//! Times depend on the machine and instructions on the compiler; the number of reads depends on neither. A walk that
//! takes no known steps makes many more.

use std::cell::Cell;

use crate::support::fixture::{self, AnyMemory, Fixture};
use stackwalk::{Limits, Memory, ScopeCache, Unreadable, Walker};

/// Most reads for a compiled frame: method and compile id of its code.
const READS_OF_KNOWN: usize = 2;
/// Most reads for any other frame, the first one included.
const READS_OF_OTHERS: usize = 60;
/// The recorded thread whose stack is a recursion in compiled code.
const RECURSION: &str = "quiet-recursion";

struct Counted<'f> {
    fixture: &'f Fixture,
    reads: Cell<usize>,
}

impl Memory for Counted<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.reads.set(self.reads.get() + 1);
        self.fixture.read(address, into)
    }
}

#[test]
fn a_known_compiled_frame_takes_two_reads() {
    let mut stacks = 0;
    for file in fixture::all() {
        let fixture = Fixture::load(&file);
        let (hotspot, mut cache) = (fixture.hotspot(), Box::new(ScopeCache::new()));
        for thread in fixture.threads.iter().filter(|thread| thread.name == RECURSION) {
            let memory = Counted { fixture: &fixture, reads: Cell::new(0) };
            let counted = AnyMemory::new(&memory);
            let (mut frames, mut groups) = (Vec::new(), Vec::new());
            let mut walk = || {
                frames.clear();
                groups.clear();
                memory.reads.set(0);
                let mut walker = Walker::new(&hotspot, &counted, &mut cache, Limits::default());
                walker.frames(&thread.capture, &thread.stack).append_to(&mut frames, &mut groups);
                let known = groups.iter().filter(|group| group.number != 0).count();
                (memory.reads.get(), known, groups.len() - known)
            };
            let first = walk();
            let (reads, known, others) = walk();
            let most = READS_OF_KNOWN * known + READS_OF_OTHERS * others;
            assert!(reads <= most, "{}: {reads} reads of {known} and {others} frames", file.display());
            assert!(first.0 > 2 * reads, "{}: {first:?}, then {reads}", file.display());
            stacks += usize::from(known > 20);
        }
    }
    assert!(stacks >= 4, "{stacks} stacks");
}
