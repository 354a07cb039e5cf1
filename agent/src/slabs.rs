//! How many slabs of which size there are for stack copies.

use std::num::NonZeroUsize;

use queue::SlabClass;

/// Spare slabs at the least, in all classes but the largest: what two busy processors need in half a second at 250 ticks
/// each, when as many threads as there are keep the sampler waiting for its turn.
const LEAST_SPARE: usize = 256;

/// The classes of slabs for so many processors; `fixed` is their number in each class, without spare ones.
///
/// In flight are at most one sample per processor and tick between two drains; 32 per processor cover a sampler that is
/// kept from running for an eighth of a second.
/// Typical stacks are below 16 KiB; classes above exist for deep recursion and the interpreter.
pub fn plan(processors: usize, fixed: Option<NonZeroUsize>) -> [SlabClass; 5] {
    let processors = processors.clamp(2, 256);
    // Spare slabs cost addresses, and 16 bytes each, until a class is half used.
    let class = |bytes, count: usize, least| {
        if let Some(count) = fixed {
            return SlabClass::fixed(bytes, count.get());
        }
        let spare = (4 * count * processors).max(least);
        SlabClass { bytes, count: count * processors, spare }
    };
    [
        class(512, 32, LEAST_SPARE),
        class(8 << 10, 32, LEAST_SPARE),
        class(32 << 10, 16, LEAST_SPARE),
        class(160 << 10, 8, LEAST_SPARE),
        class((1 << 20) + 4096, 2, 0),
    ]
}
