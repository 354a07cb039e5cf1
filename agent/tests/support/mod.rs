//! Shared by the tests of the handler, without a JVM.
#![allow(dead_code, reason = "each test is a program of its own and uses a part")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

use queue::{ReadySet, SlabClass, SnapshotPool};
use sampler_thread::clock::ThreadClock;
use sampler_thread::period::aim::Aim;
use stackwalk::ThreadOffsets;
use tickwalk::guest::mappings;
use tickwalk::handler::install;
use tickwalk::handler::rings::RingMemory;
use tickwalk::handler::slots::{self, Shared};
use tickwalk::options::thread_choice::ThreadChoice;
use tickwalk::threads::Registry;

/// Makes the handlers' data: slots without queues, slabs of these classes, and `period_ns(N)` as the period with
/// index N.
pub fn shared(
    signal: i32,
    plan: &[SlabClass],
    period_ns: impl Fn(u64) -> u64,
    former: Option<&'static Shared>,
) -> Shared {
    let region = mappings::map_forever(SnapshotPool::bytes_needed(plan)).expect("memory");
    let slots = slots::map_slots().expect("memory");
    // The number of the timer that `send` gives.
    slots.iter().take(8).for_each(|slot| slot.timer.store(1, Ordering::Relaxed));
    Shared {
        slots,
        pool: SnapshotPool::new(region, plan).expect("a valid plan"),
        descriptors: None,
        ready: ReadySet::new(slots::flags_in(mappings::map_forever(64).expect("memory"))),
        periods: std::array::from_fn(|number| AtomicU64::new(period_ns(number as u64))),
        // Every signal is a sample.
        distance_ns: AtomicU64::new(0),
        max_stack: 128 << 10,
        // The thread under test is no Java thread, so no offset is ever used.
        offsets: ThreadOffsets::default(),
        frozen: None,
        compilers: None,
        memory_file: -1,
        pauses: AtomicU64::new(1),
        block: None,
        uses_clock: false,
        stopping: AtomicBool::new(false),
        is_at_rest: AtomicBool::new(false),
        signal,
        previous: install::previous_action(signal, former).expect("a signal"),
        former,
    }
}

/// Returns an empty registry, whose timers never expire, with the handlers' data.
pub fn registry() -> (Registry, &'static Shared) {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let signal = install::choose(None, install::Sender::Timers).expect("a free signal");
    let shared = shared(signal, &[SlabClass::fixed(512, 2)], |_| HOUR_NS, None);
    let shared: &Shared = Box::leak(Box::new(shared));
    let aim = Aim { interval_ns: HOUR_NS, tick_ns: HOUR_NS, period_ns: HOUR_NS };
    (Registry::new(shared, RingMemory::default(), ThreadChoice::default(), ThreadClock::Cpu, aim), shared)
}

/// Runs `body` with the kernel ids of `count` threads, which wait until it returns.
pub fn with_threads<T>(count: usize, body: impl FnOnce(&[i32]) -> T) -> T {
    let returns = Mutex::new(());
    std::thread::scope(|scope| {
        let _body_runs = returns.lock();
        let (running, tids) = mpsc::channel();
        for _ in 0..count {
            let (running, returns) = (running.clone(), &returns);
            scope.spawn(move || {
                running.send(nix::unistd::gettid().as_raw()).expect("received");
                drop(returns.lock());
            });
        }
        body(&tids.iter().take(count).collect::<Vec<i32>>())
    })
}

/// Sends the signal to the calling thread with this code and value.
pub fn send(signal: i32, code: i32, value: *const libc::c_void) {
    // Layout of siginfo for the timer case: signo, errno, code, pad, timer id, overrun, value.
    let mut words = [0_u64; 16];
    words[0] = u64::from(signal.cast_unsigned());
    words[1] = u64::from(code.cast_unsigned());
    words[3] = value as u64;
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    // SAFETY: the record is as long as the kernel's siginfo.
    let outcome =
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, words.as_ptr()) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}
