//! A Java thread that ends while another thread is about to register it: the handler must not get the address of a
//! freed `JavaThread`.

mod support;

use std::sync::atomic::Ordering;

use tickwalk::handler::slots::Shared;
use tickwalk::threads::JavaThread;

const ADDRESS: u64 = 0x7f00_0000_1000;

/// Returns the number of slots with a `JavaThread`.
fn published(shared: &Shared) -> usize {
    shared.slots.iter().take(8).filter(|slot| slot.java_thread.load(Ordering::Relaxed) != 0).count()
}

#[test]
fn a_thread_that_has_ended_is_not_registered_by_another() {
    let (registry, shared) = support::registry();
    let tid = nix::unistd::gettid().as_raw();
    let thread = JavaThread { address: ADDRESS, stack_low: 0, stack_high: 0, name: "java".to_owned() };

    registry.java_ended(tid, None);
    registry.java_found(tid, &thread);
    assert_eq!(published(shared), 0, "it ended after the listing");
    registry.java_started(tid, &thread);
    assert_eq!(published(shared), 1, "it is back, and registers itself");
    registry.java_found(tid, &thread);
    assert_eq!(published(shared), 1);
    registry.java_ended(tid, None);
    registry.java_found(tid, &thread);
    assert_eq!(published(shared), 0);
    registry.stop();
}
