//! The registry's lock: a pause does not wait for it, and it is not held while a file is read.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};

use super::*;
use crate::threads::kernel::SignalState;

#[allow(unsafe_code, reason = "shared with the tests of the handler")]
#[path = "../../../tests/support/mod.rs"]
mod support;

fn own_tid() -> i32 {
    nix::unistd::gettid().as_raw()
}

fn java(name: &str) -> JavaThread {
    JavaThread { address: 0x7f00_0000_1000, stack_low: 0, stack_high: 0, name: name.to_owned() }
}

#[test]
fn a_pause_does_not_wait_for_the_table() {
    let (registry, _) = support::registry();
    registry.java_started(own_tid(), &java("java"));
    assert!(!registry.is_anything_pending());
    let table = registry.table.lock();
    // On this thread, which would wait for itself.
    assert!(registry.is_anything_pending(), "unknown");
    drop(table);
    assert!(!registry.is_anything_pending());
    registry.shared.ready.mark(0);
    assert!(registry.is_anything_pending());
    registry.stop();
}

#[test]
fn threads_start_while_names_of_others_are_read() {
    const FOUND: usize = 3;
    let (registry, _) = support::registry();
    support::with_threads(2 * FOUND, |tids| {
        let (found, starting) = tids.split_at(FOUND);
        let reads = AtomicUsize::new(0);
        registry.open_found(found, |_| {
            let read = reads.fetch_add(1, Ordering::Relaxed);
            let known = registry.table.try_lock().map(|table| table.by_tid.len());
            // The threads before it are registered: the lock was given up after each of them.
            let (Some(known), Some(&tid)) = (known, starting.get(read)) else { return None };
            registry.java_started(tid, &java("java"));
            (known == 2 * read).then(|| "native".to_owned())
        });
        assert_eq!((reads.into_inner(), registry.threads()), (FOUND, 2 * FOUND));
        registry.stop();
    });
}

#[test]
fn a_thread_that_waits_gets_the_lock_after_64_others() {
    let (registry, _) = support::registry();
    let (waiting, has_had_it) = (AtomicI32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut table = registry.table.lock();
        scope.spawn(|| {
            waiting.store(own_tid(), Ordering::Release);
            let _table = registry.table.lock();
            has_had_it.store(true, Ordering::Release);
        });
        let is_asleep = || SignalState::of(waiting.load(Ordering::Acquire), 1).is_some_and(|it| it.is_asleep);
        while !is_asleep() {
            std::thread::yield_now();
        }
        (1..LOOKED_AT_ONCE).for_each(|index| pass_on(&mut table, index));
        assert!(!has_had_it.load(Ordering::Acquire));
        pass_on(&mut table, LOOKED_AT_ONCE);
        assert!(has_had_it.load(Ordering::Acquire));
    });
}

#[test]
fn native_threads_have_their_last_name_and_java_threads_theirs() {
    let (registry, _) = support::registry();
    support::with_threads(2, |tids| {
        let [native, java_thread] = [tids[0], tids[1]];
        registry.open_found(&[native], |_| Some("first".to_owned()));
        registry.java_started(java_thread, &java("java"));
        let facts = |tid: i32| {
            let table = registry.table.lock();
            let entry = table.by_tid.get(&tid).and_then(|slot| table.entry(*slot));
            let facts = &entry.expect("registered").facts;
            (facts.name.to_string(), facts.kind, facts.revision)
        };
        let before = facts(native);
        registry.follow_native_names(|_| Some("second".to_owned()));
        assert_eq!(facts(native), before, "it was not sampled");
        // As if it had been sampled.
        let slot = registry.table.lock().by_tid[&native];
        registry.table.lock().add_expired(slot, 1);
        registry.follow_native_names(|_| Some("GC Thread#1".to_owned()));
        let (name, kind, revision) = facts(native);
        assert_eq!((name.as_str(), kind), ("GC Thread#1", ThreadKind::Gc));
        assert!(revision > before.2);
        assert_eq!(facts(java_thread).0, "java");
        registry.stop();
    });
}
