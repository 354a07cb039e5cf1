//! Reads of the Java heap by the handler, in a made heap without a JVM: what a pause makes uncertain is not used, and a
//! reference is followed only where its object stays.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls that read the test's own memory")]

mod support;

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use queue::SlabClass;
use sampler_thread::walk::snapshot::{CHUNK_HEAD_BYTES, FrozenExtent};
use stackwalk::{
    Capture, ChunkBottom, ChunkClass, Colours, Committed, FORWARDED, FrozenOffsets, Objects, RegionState,
    Regions, Shifted, Space, ThreadOffsets,
};
use tickwalk::handler::heap::{Heap, Reference};
use tickwalk::handler::install;
use tickwalk::handler::mounted;
use tickwalk::handler::slots::Shared;

/// Values of a thread's state.
const IN_NATIVE: u64 = 4;
const IN_JAVA: u64 = 8;
/// Class word of chunks.
const CHUNK_CLASS: u64 = 0x1234;
/// Offset of the tail of a continuation, of the parent of a chunk, and of the reference field of other objects.
const FIELD: u32 = 16;
/// Offset of a chunk's stack words.
const WORDS: u64 = 64;

/// Objects, by their first words in the heap.
const CONTINUATION: usize = 0;
const CHUNK: usize = 16;
const OBJECT: usize = 64;
const TARGET: usize = 96;

/// Below the lowest address that programs may map.
const GONE: u64 = 0x1000;

/// Masks of the VM, and the place of its good mask in a `JavaThread`.
const GOOD: u64 = 1 << 12;
const BAD: u64 = 1 << 13;
const SHIFT: u64 = 16;
const THREAD_GOOD: u32 = 8;

/// A heap, a thread and the VM's variables.
struct Made {
    heap: [AtomicU64; 128],
    /// Its first byte's address and the address behind its last byte.
    bounds: [AtomicU64; 2],
    thread: [AtomicU64; 4],
    good: AtomicU64,
    bad: AtomicU64,
    shift: AtomicU64,
    collections: AtomicU64,
}

fn address(word: &AtomicU64) -> u64 {
    std::ptr::from_ref(word) as u64
}

impl Made {
    /// A continuation with a chunk of 16 words, of which the third to the tenth hold frames.
    fn new() -> &'static Self {
        let made = Box::leak(Box::new(Self {
            heap: [const { AtomicU64::new(0) }; 128],
            bounds: [const { AtomicU64::new(0) }; 2],
            thread: [const { AtomicU64::new(0) }; 4],
            good: AtomicU64::new(GOOD),
            bad: AtomicU64::new(BAD),
            shift: AtomicU64::new(SHIFT),
            collections: AtomicU64::new(0),
        }));
        made.bounds[0].store(made.at(0), Ordering::Relaxed);
        made.bounds[1].store(made.at(127) + 8, Ordering::Relaxed);
        made.set(CONTINUATION + 2, made.at(CHUNK));
        made.set(CHUNK + 1, CHUNK_CLASS);
        // The frames begin two words above what is copied with them.
        made.set(CHUNK + 3, 16 | 4 << 32);
        made.set(CHUNK + 4, 10);
        (0..16).for_each(|word| made.set(CHUNK + WORDS as usize / 8 + word, 100 + word as u64));
        made
    }

    fn set(&self, word: usize, value: u64) {
        self.heap[word].store(value, Ordering::Relaxed);
    }

    fn at(&self, word: usize) -> u64 {
        address(&self.heap[word])
    }

    /// References with colours below the address, or as a part of it.
    fn coloured(&self, below: bool) -> Objects {
        let shifted = Shifted { shift: address(&self.shift), thread_good_mask: THREAD_GOOD };
        Objects::Coloured(Colours {
            bad_mask: address(&self.bad),
            good_mask: address(&self.good),
            shifted: below.then_some(shifted),
            collections: address(&self.collections),
        })
    }

    /// The collector's account, by which all of the heap is committed.
    fn all_committed(&self) -> Committed {
        let heap = Space { low: address(&self.bounds[0]), high: address(&self.bounds[1]) };
        Committed::Spaces([heap, heap])
    }

    /// Data of the handlers, after one pause.
    fn shared(&self, objects: Objects, holds_pauses_off: bool) -> Shared {
        self.shared_with(self.frozen(objects, holds_pauses_off))
    }

    fn shared_with(&self, frozen: FrozenOffsets) -> Shared {
        let signal = install::choose(None, install::Sender::Timers).expect("a free signal");
        Shared {
            frozen: Some(Box::leak(Box::new(frozen))),
            offsets: ThreadOffsets { in_java: IN_JAVA as u32, ..ThreadOffsets::default() },
            pauses: AtomicU64::new(2),
            ..support::shared(signal, &[SlabClass::fixed(512, 2)], |_| 1, None)
        }
    }

    fn frozen(&self, objects: Objects, holds_pauses_off: bool) -> FrozenOffsets {
        let class = ChunkClass {
            klass: 0,
            parent: FIELD,
            size: 24,
            sp: 28,
            bottom: ChunkBottom::Field(32),
            tail: FIELD,
            thread_id: 24,
            name: None,
        };
        FrozenOffsets {
            continuation: 8,
            class,
            words: WORDS as u32,
            narrow: None,
            heap: (self.at(0), self.at(127) + 8),
            committed: Some(self.all_committed()),
            objects,
            holds_pauses_off,
            klass: 8,
            klass_word: CHUNK_CLASS,
            klass_mask: u64::from(u32::MAX),
            name: None,
            barrier: 0,
        }
    }
}

fn leak(shared: Shared) -> &'static Shared {
    Box::leak(Box::new(shared))
}

fn heap_in(state: u64, shared: &'static Shared) -> Option<Heap> {
    Heap::of(&Capture { thread_state: state, ..Capture::ZERO }, shared)
}

#[test]
fn nothing_is_read_while_a_pause_runs_beside_the_handler() {
    let may_read = |holds_pauses_off, state, pauses| {
        let shared = leak(Made::new().shared(Objects::Still, holds_pauses_off));
        shared.pauses.store(pauses, Ordering::Relaxed);
        heap_in(state, shared).is_some()
    };
    assert!(may_read(true, IN_JAVA, 2) && may_read(true, IN_NATIVE, 2) && may_read(false, IN_JAVA, 2));
    assert!(may_read(true, IN_JAVA, 3), "a pause that waits for this thread");
    assert!(!may_read(true, IN_NATIVE, 3));
    assert!(!may_read(false, IN_JAVA, 3), "JDK 28: Java code looks for the pause later");
}

#[test]
fn all_that_moves_objects_changes_the_state() {
    let made = Made::new();
    let shared = leak(made.shared(made.coloured(true), true));
    let changes: [&dyn Fn(); 3] = [
        &|| _ = shared.pauses.fetch_add(2, Ordering::Relaxed),
        &|| made.good.store(BAD, Ordering::Relaxed),
        // The mask is that of two collections before.
        &|| _ = made.collections.fetch_add(2, Ordering::Relaxed),
    ];
    for (number, change) in changes.iter().enumerate() {
        let heap = heap_in(IN_JAVA, shared).expect("no pause");
        assert!(heap.is_unchanged());
        change();
        assert!(!heap.is_unchanged(), "change {number}");
    }
}

/// Frames of a thread in native code, by the copies that the handler makes.
#[test]
fn frames_copied_across_a_pause_are_dropped() {
    let made = Made::new();
    for (state, pauses, expected) in [
        (IN_NATIVE, 0, FrozenExtent::Whole),
        (IN_NATIVE, 2, FrozenExtent::Changed),
        (IN_NATIVE, 1, FrozenExtent::Changed),
        (IN_JAVA, 1, FrozenExtent::Changed),
    ] {
        let shared = leak(made.shared(Objects::Still, true));
        // The thread's stack: sp, then the entry.
        let stack = [0, 0, made.at(CONTINUATION), 0, 0, 0].map(AtomicU64::new);
        let (low, entry) = (address(&stack[0]), address(&stack[1]));
        let capture = Capture {
            thread_state: state,
            thread: address(&made.thread[0]),
            sp: low,
            stack_low: low,
            stack_high: low + 48,
            cont_entry: entry,
            ..Capture::ZERO
        };
        // SAFETY: the thread, its stack and its heap are this test's.
        let found = unsafe { mounted::of(&capture, shared, &shared.slots[0], 0) };
        assert_eq!((found.frozen.extent, found.frozen.chunks), (FrozenExtent::Whole, 1));
        assert_eq!(found.bytes(), CHUNK_HEAD_BYTES + 64);
        shared.pauses.fetch_add(pauses, Ordering::Relaxed);
        let mut copy = [0_u128; 8];
        // SAFETY: found just now, and the copy has room for it.
        let copied = unsafe { found.copy(copy.as_mut_ptr().cast()) };
        assert_eq!(copied.frozen.extent, expected, "state {state}, {pauses} changes");
        let is_whole = expected == FrozenExtent::Whole;
        assert_eq!(copied.bytes(), if is_whole { found.bytes() } else { 0 });
        let words: Vec<u64> = copy[1..5].iter().flat_map(|two| [*two as u64, (*two >> 64) as u64]).collect();
        assert!(!is_whole || words == [102, 103, 104, 105, 106, 107, 108, 109], "{words:?}");
    }
}

#[test]
fn references_are_followed_where_their_objects_stay() {
    let made = Made::new();
    let target = made.at(TARGET);
    let check = |objects: Objects, word: u64, expected: Reference| {
        made.set(OBJECT + 2, word);
        let shared = leak(made.shared(objects, true));
        for state in [IN_JAVA, IN_NATIVE] {
            let heap = heap_in(state, shared).expect("no pause");
            // SAFETY: an object of the made heap.
            let found = unsafe { heap.reference(made.at(OBJECT), FIELD) };
            assert!(found == expected, "{objects:?}: {word:#x} in state {state} is {:?}", found.object());
        }
    };
    check(Objects::Still, target, Reference::Object(target));
    check(Objects::Still, 0, Reference::Null);
    check(Objects::Still, target + 4, Reference::Invalid);
    check(Objects::Still, made.at(127) + 8, Reference::Invalid);

    // ZGC with generations: address << shift | colour.
    let below = made.coloured(true);
    check(below, target << SHIFT | GOOD, Reference::Object(target));
    check(below, target << SHIFT | BAD, Reference::Moving);
    check(below, target << SHIFT | GOOD | BAD, Reference::Moving);
    check(below, BAD, Reference::Null);
    check(below, 0x1000 << SHIFT | GOOD, Reference::Invalid);
    // ZGC without generations: the good colour is a part of the address.
    made.bad.store(1 << 62, Ordering::Relaxed);
    let within = made.coloured(false);
    check(within, target, Reference::Object(target));
    check(within, target | 1 << 62, Reference::Moving);
    check(within, 0, Reference::Null);

    // Shenandoah: the mark word of an object that was copied leads to the copy.
    let old = made.at(CHUNK);
    for (mark, expected) in [
        (1, Reference::Object(old)),
        (target | FORWARDED, Reference::Object(target)),
        (FORWARDED, Reference::Object(old)),
        (0x1000 | FORWARDED, Reference::Invalid),
    ] {
        made.set(CHUNK, mark);
        check(Objects::Forwarded, old, expected);
    }
}

/// ZGC with generations corrects the references on a thread's stack some time after the pause.
#[test]
fn an_uncorrected_reference_on_the_stack_is_not_followed() {
    let made = Made::new();
    let shared = leak(made.shared(made.coloured(true), true));
    let heap = heap_in(IN_JAVA, shared).expect("no pause");
    let on_stack = AtomicU64::new(made.at(CONTINUATION));
    for (mask, expected) in [(GOOD, Reference::Object(made.at(CONTINUATION))), (BAD, Reference::Moving)] {
        made.thread[1].store(mask, Ordering::Relaxed);
        // SAFETY: this test's words.
        let found = unsafe { heap.of_own_stack(address(&on_stack), address(&made.thread[0])) };
        assert!(found == expected, "{mask:#x}: {:?}", found.object());
    }
}

/// A word of the heap as each kind of thread reads it: in Java code, in native code.
fn words_read(frozen: FrozenOffsets, made: &'static Made, at: u64) -> [Option<u64>; 2] {
    let shared = leak(made.shared_with(frozen));
    [IN_JAVA, IN_NATIVE].map(|state| {
        let heap = heap_in(state, shared).expect("no pause");
        // SAFETY: a word of the made heap, or an address that is checked.
        unsafe { heap.read(at, 0) }
    })
}

#[test]
fn words_outside_of_the_committed_ranges_are_not_read() {
    let made = Made::new();
    made.set(TARGET, 7);
    let unused = Space { low: address(&made.thread[0]), high: address(&made.thread[0]) };
    let Committed::Spaces([heap, _]) = made.all_committed() else { panic!("ranges") };
    for spaces in [[heap, unused], [unused, heap]] {
        let frozen =
            FrozenOffsets { committed: Some(Committed::Spaces(spaces)), ..made.frozen(Objects::Still, true) };
        for (word, expected) in [(TARGET + 1, Some(7)), (TARGET, None), (TARGET + 2, Some(7))] {
            // The collector moves the end of what it has committed.
            made.bounds[1].store(made.at(word), Ordering::Relaxed);
            assert_eq!(words_read(frozen, made, made.at(TARGET)), [expected; 2], "up to word {word}");
        }
        made.bounds[0].store(made.at(TARGET + 1), Ordering::Relaxed);
        assert_eq!(words_read(frozen, made, made.at(TARGET)), [None; 2]);
        made.bounds[0].store(made.at(0), Ordering::Relaxed);
    }
}

#[test]
fn words_of_regions_without_memory_are_not_read() {
    const SHIFT: u32 = 6;
    let made = Made::new();
    // A region begins at a multiple of its size.
    let first = made.at(7) >> SHIFT;
    let at = |region: u64| (first + region) << SHIFT;
    let word = (at(1) - made.at(0)) as usize / 8;
    (word..word + 16).for_each(|word| made.set(word, 7));
    // The state is the upper half of the second word of a region.
    let regions = [[2, 1 << 32 | 2], [1, 2 << 32], [1, 3 << 32]].map(|words| words.map(AtomicU64::new));
    let entries = [address(&regions[0][0]), address(&regions[1][0]), 0].map(AtomicU64::new);
    let account = |state, end| Regions {
        entries: address(&entries[0]).wrapping_sub((first + 1) * 8),
        mask: u64::MAX,
        shift: SHIFT,
        end: first + end,
        state,
    };
    let state = Some(RegionState { offset: 12, unused: 1 });
    let read = |regions, region| {
        let committed = Some(Committed::Regions(regions));
        let frozen = FrozenOffsets { committed, ..made.frozen(Objects::Still, true) };
        words_read(frozen, made, at(region))
    };
    assert_eq!(read(account(state, 4), 1), [None; 2], "not committed");
    assert_eq!(read(account(state, 4), 2), [Some(7); 2]);
    assert_eq!(read(account(state, 4), 3), [None; 2], "never committed");
    assert_eq!(read(account(None, 4), 1), [Some(7); 2], "an entry is enough");
    assert_eq!(read(account(None, 2), 2), [None; 2], "behind the table");

    // A copy across regions needs memory in each.
    let copied = |last: u64| {
        entries[2].store(last, Ordering::Relaxed);
        let committed = Some(Committed::Regions(account(state, 4)));
        let shared = leak(made.shared_with(FrozenOffsets { committed, ..made.frozen(Objects::Still, true) }));
        let mut copy = [0_u128; 8];
        let heap = heap_in(IN_JAVA, shared).expect("no pause");
        // SAFETY: words of the made heap, and the copy has room for them.
        unsafe { heap.copy(at(2), copy.as_mut_ptr().cast(), 72) }
    };
    assert!(!copied(0) && !copied(address(&regions[0][0])) && copied(address(&regions[2][0])));
}

/// If the collector's account is unknown, the kernel checks each address, in Java code as well.
#[test]
fn an_unknown_account_leaves_the_check_to_the_kernel() {
    let made = Made::new();
    made.set(TARGET, 7);
    let heap = (0, u64::MAX);
    let frozen = FrozenOffsets { heap, committed: None, ..made.frozen(Objects::Still, true) };
    assert_eq!(words_read(frozen, made, made.at(TARGET)), [Some(7); 2]);
    assert_eq!(words_read(frozen, made, GONE), [None; 2]);
}

/// A collection gives memory back to the kernel: both ways of reading beside a pause report it.
#[test]
fn memory_that_is_gone_is_an_error_in_native_code() {
    let made = Made::new();
    made.set(TARGET, 7);
    let file = std::fs::File::open("/proc/self/mem").expect("the process's own memory");
    for memory_file in [-1, file.as_raw_fd()] {
        let frozen =
            FrozenOffsets { heap: (0, u64::MAX), committed: None, ..made.frozen(Objects::Still, true) };
        let shared = leak(Shared { memory_file, ..made.shared_with(frozen) });
        let heap = heap_in(IN_NATIVE, shared).expect("no pause");
        // SAFETY: a word of the made heap.
        assert_eq!(unsafe { heap.read::<u64>(made.at(TARGET), 0) }, Some(7));
        // SAFETY: the kernel checks the address.
        assert_eq!(unsafe { heap.read::<u64>(GONE, 0) }, None);
        let mut copy = [0_u128; 1];
        // SAFETY: as above, and the copy has room for 16 bytes.
        assert!(!unsafe { heap.copy(GONE, copy.as_mut_ptr().cast(), 16) });
    }
    // A descriptor that cannot be read, as where a sandbox allows neither.
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("a device");
    let shared = leak(Shared { memory_file: null.as_raw_fd(), ..made.shared(Objects::Still, true) });
    let heap = heap_in(IN_NATIVE, shared).expect("no pause");
    // SAFETY: a word of the made heap.
    assert_eq!(unsafe { heap.read::<u64>(made.at(TARGET), 0) }, None);
}
