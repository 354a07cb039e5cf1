//! A thread that is renamed so that the options choose it, or leave it out, gets a timer or loses it. If the VM walks
//! the stacks itself, the thread has no timer, and its CPU time is claimed with each answer.

mod support;

use queue::SlabClass;
use sampler_thread::clock::{ThreadClock, thread_cpu_nanos};
use sampler_thread::period::aim::Aim;
use tickwalk::handler::install;
use tickwalk::handler::rings::RingMemory;
use tickwalk::options::thread_choice::ThreadChoice;
use tickwalk::threads::{JavaThread, Registry};

/// No timer of this test ever expires.
const HOUR_NS: u64 = 3_600_000_000_000;

#[test]
fn a_renamed_thread_is_judged_again() {
    let signal = install::choose(None, install::Sender::Timers).expect("a free signal");
    let shared = Box::leak(Box::new(support::shared(signal, &[SlabClass::fixed(512, 2)], |_| HOUR_NS, None)));
    let aim = Aim { interval_ns: HOUR_NS, tick_ns: HOUR_NS, period_ns: HOUR_NS };
    let mut choice = ThreadChoice::default();
    choice.sample("kept*").expect("valid");
    let registry = Registry::new(shared, RingMemory::default(), choice, ThreadClock::Cpu, aim);
    let tid = nix::unistd::gettid().as_raw();
    let mut thread =
        JavaThread { address: 0x7f00_0000_1000, stack_low: 0, stack_high: 0, name: "other".to_owned() };
    let timers = || (registry.timer_counts().threads, registry.timer_counts().with_timer);

    registry.java_started(tid, &thread);
    assert_eq!(timers(), (1, 0));
    assert_eq!(
        registry.timer_counts().sharing,
        0,
        "a thread that is left out does not lengthen the period of others"
    );
    for (name, with_timer) in [("kept 1", 1), ("other", 0), ("another", 0), ("kept 2", 1), ("kept 3", 1)] {
        registry.rename(tid, name);
        assert_eq!(timers(), (1, with_timer), "{name}");
        assert_eq!(registry.timer_counts().sharing, with_timer, "{name}");
    }
    // A native thread that attaches to the VM under another name.
    thread.name = "other".to_owned();
    registry.java_started(tid, &thread);
    assert_eq!(timers(), (1, 0));
    registry.java_ended(tid, None);
    registry.stop();
}

#[test]
fn a_traced_thread_has_no_timer_and_its_cpu_time_is_claimed_once() {
    const INTERVAL_NS: u64 = 2_000_000;
    let signal = install::choose(None, install::Sender::Timers).expect("a free signal");
    let shared =
        Box::leak(Box::new(support::shared(signal, &[SlabClass::fixed(512, 2)], |_| INTERVAL_NS, None)));
    let aim = Aim { interval_ns: INTERVAL_NS, tick_ns: INTERVAL_NS, period_ns: INTERVAL_NS };
    let mut choice = ThreadChoice::default();
    choice.skip("skipped").expect("valid");
    let registry = Registry::new(shared, RingMemory::default(), choice, ThreadClock::Cpu, aim);
    let registry = registry.traced(true);
    let tid = nix::unistd::gettid().as_raw();
    let thread =
        JavaThread { address: 0x7f00_0000_1000, stack_low: 0, stack_high: 0, name: "worker".to_owned() };
    let burn = || {
        let begin = thread_cpu_nanos(tid).expect("own clock");
        while thread_cpu_nanos(tid).expect("own clock") < begin + INTERVAL_NS {}
    };
    let before_ns = thread_cpu_nanos(tid).expect("own clock");
    registry.java_started(tid, &thread);
    assert_eq!((registry.timer_counts().threads, registry.timer_counts().with_timer), (1, 0));
    burn();
    let [due] = registry.due()[..] else { panic!("one thread has run") };
    assert_eq!(due.address, thread.address);
    let mut claimed_ns = 0;
    registry.claim(&due, |ns| claimed_ns += ns);
    let after_ns = thread_cpu_nanos(tid).expect("own clock");
    assert!((INTERVAL_NS..=after_ns - before_ns).contains(&claimed_ns), "{claimed_ns}");
    // A thread that is left out claims no time.
    registry.rename(tid, "skipped");
    burn();
    assert_eq!(registry.due(), []);
    registry.claim(&due, |ns| panic!("{ns} ns of a thread that is left out"));
    registry.rename(tid, "worker");
    burn();
    assert_eq!(registry.due().len(), 1);
    registry.java_ended(tid, None);
    registry.claim(&due, |ns| panic!("{ns} ns of a thread that has ended"));
    registry.stop();
}
