//! Perf events without a JVM: their signals, and a forked process with a copy of the descriptor.
//!
//! One test in this file, because it installs process-wide handlers. Where perf events are not permitted it says so and
//! checks nothing.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "short sequences of system calls on the test's own memory"
)]

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, gettid};
use sampler_thread::clock::own_cpu_nanos;
use tickwalk::clock::descriptors::{self, Descriptors};
use tickwalk::clock::grid::Key;
use tickwalk::clock::perf_event::{self, PerfEvent};
use tickwalk::handler::install::{self, Sender};
use tickwalk::handler::slots;

const PERIOD_NS: u64 = 1_000_000;

static EXPIRED: AtomicU64 = AtomicU64::new(0);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo.
    let info = unsafe { &*info };
    let descriptor = descriptors::descriptor_of(info);
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    match info.si_code {
        descriptors::EXPIRED if EXPIRED.fetch_add(1, Ordering::Relaxed) == 0 => {
            descriptors::set_period(descriptor, PERIOD_NS);
        }
        _ => {}
    }
}

fn burn(nanos: u64) {
    let end_ns = own_cpu_nanos() + nanos;
    while own_cpu_nanos() < end_ns {}
}

fn is_open(descriptor: i32) -> bool {
    // SAFETY: a request without memory.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

#[test]
fn an_event_sends_signals_until_it_ends() {
    if let Err(error) = perf_event::check() {
        eprintln!("SKIPPED: {error}");
        return;
    }
    let chosen = install::choose(None, Sender::Events).expect("a free signal");
    // SAFETY: all-zero bytes are a valid sigaction; the handler has the form that SA_SIGINFO announces.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(chosen, &raw const action, std::ptr::null_mut()), 0);
    }
    let table = Descriptors::new(slots::map_words(perf_event::most_descriptors()).expect("memory"));
    let key = Key::default().next(3);
    let event = PerfEvent::create(gettid().as_raw(), chosen, table, 7, key).expect("an event");
    let descriptor = event.number() - 1;
    assert_eq!(table.get(descriptor), Some((7, key)));
    event.start(PERIOD_NS / 3).expect("started");
    burn(100 * PERIOD_NS);
    let expired = EXPIRED.load(Ordering::Relaxed);
    assert_eq!(DESCRIPTOR.load(Ordering::Relaxed), descriptor);
    // The event misses the switches of threads, and has some stolen time more. With the first period they would be 300.
    assert!((60..=140).contains(&expired), "{expired} expirations in 100 periods");

    // A forked process has a copy of the descriptor and waits; the event still ends with the original.
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child only waits for the pipe and ends.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            drop(writer);
            _ = std::io::Read::read(&mut reader, &mut [0]);
            // SAFETY: ends the process without anything of the test's.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(event);
            assert!(!is_open(descriptor));
            let before = EXPIRED.load(Ordering::Relaxed);
            burn(20 * PERIOD_NS);
            assert_eq!(EXPIRED.load(Ordering::Relaxed), before, "no signal after the end");
            drop(writer);
            waitpid(child, None).expect("it ends");
        }
    }
}
