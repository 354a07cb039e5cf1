//! Copies the frozen frames of a stopped virtual thread from another process; lists the moments that are recorded.
//!
//! The workload `Mounted` prints the field offsets. Reads, their order and their bounds are those of the agent's
//! handler.

use super::fixture::FrozenCopy;
use super::{Jvm, RemoteMemory};
use stackwalk::{
    Capture, ChunkBottom, ChunkClass, FRAME_RECORD_BYTES, FrozenOffsets, HotSpot, MAX_CHUNKS, Memory, Stop,
};

/// Moments of a virtual thread that the walk distinguishes, and the stop reason at each. One sample of each is
/// recorded.
pub const MOMENTS: [(&str, Stop); 18] = [
    // Older frames are below the return barrier: in the newest chunk, or in two chunks.
    ("running over one chunk", Stop::EndOfContinuation),
    ("running over two chunks", Stop::EndOfContinuation),
    // `Continuation.doYield` and C code it calls: before its callers are copied, after that, and while the barrier
    // replaces the newest chunk's pc.
    ("yield, all on the stack", Stop::EndOfContinuation),
    ("yield, all on the stack, in C code", Stop::EndOfContinuation),
    ("yield, some on the stack", Stop::EndOfContinuation),
    ("yield, some on the stack, in C code", Stop::EndOfContinuation),
    ("yield, copied", Stop::EndOfContinuation),
    ("yield, copied, in C code", Stop::EndOfContinuation),
    ("yield, not patched, in C code", Stop::ContinuationBarrier),
    // A stub that thaws frames, and C code it calls: while the chunk begins with the yielded frame, after frames are
    // taken out, and at the end, when they are on the stack.
    ("thaw after a yield", Stop::EndOfContinuation),
    ("thaw after a yield, in C code", Stop::EndOfContinuation),
    ("thaw after a yield, taken out, in C code", Stop::EndPastThaw),
    ("thaw about to return", Stop::EndOfContinuation),
    // The same after the oldest frame on the stack has returned: once stack is reserved, the chunk does not tell which
    // frames are being thawed.
    ("at the return barrier", Stop::EndOfContinuation),
    ("thaw after a return", Stop::EndOfContinuation),
    ("thaw after a return, in C code", Stop::EndOfContinuation),
    ("thaw after a return, with room", Stop::EndPastThaw),
    ("thaw after a return, with room, in C code", Stop::EndPastThaw),
];

/// Returns the number that the workload printed after `words`.
fn printed(jvm: &Jvm, words: &str) -> Option<i64> {
    let line = jvm.printed.iter().find_map(|line| line.strip_prefix(words)?.strip_prefix(' '))?;
    Some(line.parse().expect("a number"))
}

/// Returns the printed layout of the classes that hold frozen frames.
fn chunk_class(jvm: &Jvm, hotspot: &HotSpot) -> ChunkClass {
    let field = |name: &str| printed(jvm, &format!("field {name}")).map(|offset| offset as u32);
    let known = |name: &str| field(name).unwrap_or_else(|| panic!("no field {name}"));
    let mirror = hotspot.class_klass_offset(&jvm.memory()).expect("known");
    ChunkClass {
        klass: printed(jvm, &format!("mirror {mirror}")).expect("among the words") as u64,
        parent: known("parent"),
        size: known("size"),
        sp: known("sp"),
        bottom: match field("bottom") {
            Some(offset) => ChunkBottom::Field(offset),
            None => ChunkBottom::Arguments(known("argsize")),
        },
        tail: known("tail"),
        thread_id: known("tid"),
        name: None,
    }
}

/// Returns the offsets of frozen frames in a JVM that runs `Mounted`.
pub fn offsets(jvm: &Jvm, hotspot: &HotSpot) -> FrozenOffsets {
    hotspot.frozen_offsets(&jvm.memory(), chunk_class(jvm, hotspot)).expect("a known collector")
}

/// Copies the chunks of the virtual thread on a stopped carrier.
pub fn copy(memory: &RemoteMemory, capture: &Capture, offsets: &FrozenOffsets) -> FrozenCopy {
    if !offsets.is_entered(capture.cont_entry, capture.pc, capture.sp) {
        return FrozenCopy::default();
    }
    let continuation =
        memory.read_u64(capture.cont_entry + u64::from(offsets.continuation)).expect("an entry");
    let mut chunk = reference(memory, continuation, offsets.class.tail, offsets);
    let mut found = FrozenCopy::default();
    while chunk != 0 && found.chunks.len() < MAX_CHUNKS {
        let word = memory.read_u64(chunk + u64::from(offsets.klass)).expect("an object");
        assert_eq!(word & offsets.klass_mask, offsets.klass_word, "a chunk");
        let used = used(memory, chunk, offsets);
        found.emptied |= found.chunks.is_empty() && used.is_none();
        found.chunks.extend(used);
        chunk = reference(memory, chunk, offsets.class.parent, offsets);
    }
    found.whole = chunk == 0;
    found
}

/// Reads the reference at `offset` of `object`.
fn reference(memory: &RemoteMemory, object: u64, offset: u32, offsets: &FrozenOffsets) -> u64 {
    let address = object + u64::from(offset);
    let target = match offsets.narrow {
        Some((base, shift)) => match memory.read_u32(address).expect("a field") {
            0 => 0,
            narrow => base + (u64::from(narrow) << shift),
        },
        None => memory.read_u64(address).expect("a field"),
    };
    assert!(target == 0 || (offsets.heap.0..offsets.heap.1).contains(&target), "an object");
    target
}

/// Returns the used words of a chunk and the frame record below them, with their address; `None` if it is empty.
fn used(memory: &RemoteMemory, chunk: u64, offsets: &FrozenOffsets) -> Option<(u64, Vec<u8>)> {
    let class = &offsets.class;
    let number = |offset: u32| {
        u64::try_from(memory.read_i32(chunk + u64::from(offset)).expect("a field")).expect("not negative")
    };
    let (size, sp) = (number(class.size), number(class.sp));
    let bottom = match class.bottom {
        ChunkBottom::Field(offset) => number(offset),
        ChunkBottom::Arguments(offset) => size - number(offset),
    };
    assert!(bottom <= size, "within the chunk");
    if sp >= bottom {
        return None;
    }
    let from = chunk + u64::from(offsets.words) + sp * 8 - FRAME_RECORD_BYTES;
    let mut bytes = vec![0; ((bottom - sp) * 8 + FRAME_RECORD_BYTES) as usize];
    memory.read(from, &mut bytes).expect("in the heap");
    Some((from, bytes))
}
