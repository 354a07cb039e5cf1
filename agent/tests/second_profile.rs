//! Two profiles of one process, one after the other, with different signals: late ticks of the first are ignored, and
//! foreign signals go to the handler from before any profile.
//!
//! One test in this file, because it installs process-wide handlers.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use libc::SI_TIMER;
use queue::{LostCause, SlabClass};
use support::send;
use tickwalk::guest::mappings;
use tickwalk::handler::install::{self, SignalError};
use tickwalk::handler::slots::{self, Shared};

/// Number of runs of each of two foreign handlers.
static CALLED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

extern "C" fn first_foreign(_signal: i32) {
    CALLED[0].fetch_add(1, Ordering::Relaxed);
}

extern "C" fn second_foreign(_signal: i32) {
    CALLED[1].fetch_add(1, Ordering::Relaxed);
}

fn called() -> [u64; 2] {
    CALLED.each_ref().map(|count| count.load(Ordering::Relaxed))
}

fn install_foreign(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: a handler with one argument.
    let previous = unsafe { libc::signal(signal, handler as *const () as usize) };
    assert_ne!(previous, libc::SIG_ERR);
}

fn publish(signal: i32, former: Option<&'static Shared>) -> &'static Shared {
    let plan = [SlabClass::fixed(512, 2)];
    let shared = slots::publish(support::shared(signal, &plan, |_| 1_000_000, former));
    install::install(signal).expect("installed");
    shared
}

fn slot(shared: &'static Shared) -> *const libc::c_void {
    std::ptr::from_ref(&shared.slots[1]).cast()
}

fn ticks(shared: &Shared) -> u64 {
    let lost = |cause: LostCause| shared.slots[1].queue.lost().snapshot()[cause.index()].count;
    lost(LostCause::QueueFull) + lost(LostCause::Stopping)
}

#[test]
fn each_signal_keeps_its_first_handler() {
    let (usual, other) =
        (install::choose(None, install::Sender::Timers).expect("a free signal"), libc::SIGRTMAX());
    install_foreign(usual, first_foreign);
    install_foreign(other, second_foreign);

    let first = publish(usual, None);
    // A slot without a queue counts every tick as lost.
    send(usual, SI_TIMER, slot(first));
    assert_eq!((ticks(first), called()), (1, [0, 0]));
    // The key of a timer is used again; its number in the kernel is another one.
    first.slots[1].timer.store(7, Ordering::Relaxed);
    send(usual, SI_TIMER, slot(first));
    assert_eq!((ticks(first), called()), (1, [0, 0]), "a late signal of the slot's former timer");
    first.slots[1].timer.store(1, Ordering::Relaxed);
    first.stopping.store(true, Ordering::Release);
    send(usual, SI_TIMER, slot(first));
    assert_eq!((ticks(first), called()), (2, [0, 0]));

    mappings::release_former(false, None);
    assert_eq!(ticks(first), 0, "its pages read as zero");
    let second = publish(other, Some(first));
    for signal in [usual, other] {
        send(signal, SI_TIMER, slot(first));
        send(signal, SI_TIMER, slot(second));
    }
    assert_eq!(
        (ticks(first), ticks(second), called()),
        (0, 2, [0, 0]),
        "the account of the first profile is closed"
    );
    send(usual, libc::SI_QUEUE, std::ptr::null());
    assert_eq!(called(), [1, 0]);
    send(other, libc::SI_QUEUE, std::ptr::null());
    send(other, SI_TIMER, std::ptr::null());
    assert_eq!(called(), [1, 2]);

    // The third uses the first one's signal again: its previous handler is not our own.
    assert_eq!(
        install::choose(None, install::Sender::Timers).expect("a free signal"),
        usual,
        "a signal with our own handler is free"
    );
    let third = publish(usual, Some(second));
    send(usual, SI_TIMER, slot(third));
    send(usual, SI_TIMER, slot(second));
    send(usual, libc::SI_QUEUE, std::ptr::null());
    assert_eq!((ticks(third), called()), (1, [2, 2]));

    // A foreign handler over ours may call ours.
    install_foreign(other, first_foreign);
    let refused = install::previous_action(other, Some(third));
    assert!(matches!(refused, Err(SignalError::TakenOver(number)) if number == other));
    install_foreign(other, second_foreign);
    assert!(install::previous_action(other, Some(third)).is_ok(), "the previous handler is restored");
}
