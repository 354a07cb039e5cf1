//! A Java thread that ends while another thread is about to register it: the handler must not get the address of a freed
//! `JavaThread`.

mod support;

use std::sync::atomic::Ordering;

use queue::SlabClass;
use sampler_thread::account::clock::ThreadClock;
use sampler_thread::period::aim::Aim;
use tickwalk::arena::Shared;
use tickwalk::options::thread_choice::ThreadChoice;
use tickwalk::rings::RingMemory;
use tickwalk::signal;
use tickwalk::threads::{JavaThread, Registry};

/// No timer of this test ever expires.
const HOUR_NS: u64 = 3_600_000_000_000;
const ADDRESS: u64 = 0x7f00_0000_1000;

fn shared(signal: i32) -> &'static Shared {
    Box::leak(Box::new(support::shared(signal, &[SlabClass::fixed(512, 2)], |_| HOUR_NS, None)))
}

/// Returns the number of slots with a `JavaThread`.
fn published(shared: &Shared) -> usize {
    shared.slots.iter().take(8).filter(|slot| slot.java_thread.load(Ordering::Relaxed) != 0).count()
}

#[test]
fn a_thread_that_has_ended_is_not_registered_by_another() {
    let signal = signal::choose(None).expect("a free signal");
    let shared = shared(signal);
    let aim = Aim { interval_ns: HOUR_NS, tick_ns: HOUR_NS, period_ns: HOUR_NS };
    let registry = Registry::new(
        shared,
        RingMemory::default(),
        (signal, ThreadChoice::default()),
        ThreadClock::Cpu,
        aim,
    );
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
