//! A thread that is renamed so that the options choose it, or leave it out, gets a timer or loses it.

mod support;

use queue::SlabClass;
use sampler_thread::account::clock::ThreadClock;
use sampler_thread::period::aim::Aim;
use tickwalk::options::thread_choice::ThreadChoice;
use tickwalk::rings::RingMemory;
use tickwalk::signal;
use tickwalk::threads::{JavaThread, Registry};

/// No timer of this test ever expires.
const HOUR_NS: u64 = 3_600_000_000_000;

#[test]
fn a_renamed_thread_is_judged_again() {
    let signal = signal::choose(None).expect("a free signal");
    let shared = Box::leak(Box::new(support::shared(signal, &[SlabClass::fixed(512, 2)], |_| HOUR_NS, None)));
    let aim = Aim { interval_ns: HOUR_NS, tick_ns: HOUR_NS, period_ns: HOUR_NS };
    let mut choice = ThreadChoice::default();
    choice.sample("kept*").expect("valid");
    let registry = Registry::new(shared, RingMemory::default(), (signal, choice), ThreadClock::Cpu, aim);
    let tid = nix::unistd::gettid().as_raw();
    let mut thread =
        JavaThread { address: 0x7f00_0000_1000, stack_low: 0, stack_high: 0, name: "other".to_owned() };
    let timers = || (registry.timer_counts().threads, registry.timer_counts().with_timer);

    registry.java_started(tid, &thread);
    assert_eq!(timers(), (1, 0));
    for (name, with_timer) in [("kept 1", 1), ("other", 0), ("another", 0), ("kept 2", 1), ("kept 3", 1)] {
        registry.rename(tid, name);
        assert_eq!(timers(), (1, with_timer), "{name}");
    }
    // A native thread that attaches to the VM under another name.
    thread.name = "other".to_owned();
    registry.java_started(tid, &thread);
    assert_eq!(timers(), (1, 0));
    registry.java_ended(tid, None);
    registry.stop();
}
