//! Compares what each collector says about its committed memory with the mappings of the process.
//!
//! `TICKWALK_JDKS=<folder with JAVA_HOMEs> cargo test -p stackwalk committed:: -- --nocapture`

use crate::support::{Jdk, Jvm, compile, jdks};
use stackwalk::{CollectedHeap, Committed, Memory as _};

/// Bytes between the addresses that are compared; no region is smaller.
const STEP: u64 = 256 << 10;

/// Bytes that the workload keeps.
const KEPT: u64 = 32 << 20;

/// Smallest and largest heap: the rest is reserved only.
const HEAP: [&str; 2] = ["-Xms40m", "-Xmx512m"];
const HEAP_BYTES: u64 = 512 << 20;

/// Collectors whose frozen frames are followed.
fn collectors(jdk: &Jdk) -> Vec<Vec<&'static str>> {
    let mut found = vec![
        vec!["-XX:+UseSerialGC"],
        vec!["-XX:+UseParallelGC"],
        vec!["-XX:+UseG1GC"],
        vec!["-XX:+UseShenandoahGC"],
        vec!["-XX:+UseZGC"],
    ];
    if jdk.major < 23 {
        found.push(vec!["-XX:+UseZGC", "-XX:+ZGenerational"]);
    }
    found
}

/// Returns the mappings of the process that overlap a range.
fn mappings(jvm: &Jvm, range: (u64, u64)) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", jvm.pid())).expect("own child");
    let bounds = maps.lines().map(|line| {
        let (start, end) = line.split(' ').next().and_then(|text| text.split_once('-')).expect("bounds");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        (number(start).max(range.0), number(end).min(range.1))
    });
    bounds.filter(|(start, end)| start < end).collect()
}

fn holds(jvm: &Jvm, committed: &Committed, address: u64, bytes: u64) -> bool {
    committed.holds(address, bytes, |word| jvm.memory().read_u64(word).ok())
}

#[test]
fn memory_that_collectors_call_committed_can_be_read() {
    let classes = compile("Filled.java");
    for jdk in jdks().into_iter().filter(|jdk| jdk.major >= 21) {
        for collector in collectors(&jdk) {
            let name = format!("{} {}", jdk.name, collector.join(" "));
            let flags = [&HEAP[..], &collector].concat();
            let jvm = Jvm::start(&jdk.home, &flags, &classes, "Filled");
            let heap = jvm.hotspot().collected_heap(&jvm.memory()).expect("a known collector");
            compare(&name, &jvm, heap, jdk.major >= 28 && collector.contains(&"-XX:+UseParallelGC"));
        }
    }
}

fn compare(name: &str, jvm: &Jvm, heap: CollectedHeap, is_unknown: bool) {
    let CollectedHeap { range, committed, .. } = heap;
    assert_eq!(committed.is_none(), is_unknown, "{name}");
    let Some(committed) = committed else { return };
    let is_readable = |address| jvm.memory().read_u64(address).is_ok();
    let (mut held, mut without_memory) = (0, 0);
    for (start, end) in mappings(jvm, range) {
        for address in (start.next_multiple_of(STEP)..end).step_by(STEP as usize) {
            let last_word = address + STEP - 8;
            if holds(jvm, &committed, address, STEP) {
                held += STEP;
                assert!(is_readable(address) && is_readable(last_word), "{name}: {address:#x} has no memory");
            } else if !is_readable(address) {
                without_memory += STEP;
            }
        }
    }
    println!("{name}: {} MiB committed, {} MiB reserved only", held >> 20, without_memory >> 20);
    assert!((KEPT..HEAP_BYTES).contains(&held), "{name}: {held} bytes committed");
    // ZGC has no mapping where there is no memory.
    assert!(without_memory > 0 || name.contains("UseZGC"), "{name}");
    let mut from_end = std::iter::successors(Some(range.1 - STEP), |&address| Some(address - STEP));
    let absent = from_end.find(|&address| !is_readable(address)).expect("not all of the heap is committed");
    assert!(!holds(jvm, &committed, absent, 8), "{name}: {absent:#x} has no memory");
    assert!(!holds(jvm, &committed, range.1 - 8, 0) && !holds(jvm, &committed, u64::MAX - 7, 16), "{name}");
}
