//! The handler is removed after a profile, although a signal is still queued for a thread that blocks it.
//!
//! One test in this file, because it installs process-wide handlers.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use queue::SlabClass;
use tickwalk::handler::{install, slots};

static CALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn foreign(_signal: i32) {
    CALLED.store(true, Ordering::Relaxed);
}

fn mask(how: i32, signal: i32) {
    // SAFETY: all-zero bytes are a valid set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) }, 0);
}

#[test]
fn a_queued_signal_does_not_end_the_process() {
    let chosen = install::choose(None, install::Sender::Timers).expect("a free signal");
    let plan = [SlabClass::fixed(512, 2)];
    let shared = slots::publish(support::shared(chosen, &plan, |_| 1_000_000, None));
    install::install(chosen).expect("installed");
    assert!(install::has_handler(chosen));

    let ((blocked, is_blocked), (go_on, may_go_on)) = (channel(), channel::<()>());
    let thread = std::thread::spawn(move || {
        mask(libc::SIG_BLOCK, chosen);
        // SAFETY: the calling thread.
        blocked.send(unsafe { libc::pthread_self() } as u64).expect("received");
        may_go_on.recv().expect("sent");
        // A queued signal would be delivered here, and its default action ends the process.
        mask(libc::SIG_UNBLOCK, chosen);
    });
    let target = is_blocked.recv().expect("sent") as libc::pthread_t;
    // SAFETY: the thread waits for the channel.
    assert_eq!(unsafe { libc::pthread_kill(target, chosen) }, 0);
    install::uninstall(shared).expect("removed");
    assert!(!install::has_handler(chosen));
    go_on.send(()).expect("received");
    thread.join().expect("the process lives");

    // A handler that the program has installed stays.
    // SAFETY: a handler with one argument.
    unsafe { libc::signal(chosen, foreign as *const () as usize) };
    install::uninstall(shared).expect("nothing to do");
    // SAFETY: the handler is installed.
    assert_eq!(unsafe { libc::raise(chosen) }, 0);
    assert!(CALLED.load(Ordering::Relaxed));
}
