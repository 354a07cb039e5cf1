//! Runs the handler over stacks of given sizes, without a JVM: `java-tests/measure/aarch64 count` counts its
//! instructions; with the argument `time` it prints how long the handler takes, by the counter of the processor.
//!
//! The first run of a size finds the interrupted sp; the others come from the same place, with the upper bound of the
//! stack at that distance. The thread has a `JavaThread` of zeros, so the handler reads all its fields; no virtual
//! thread is mounted.
#![allow(unsafe_code, reason = "installs the handler and sends it signals")]

#[allow(clippy::expect_used, clippy::multiple_unsafe_ops_per_block, reason = "shared with tests")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::hint::black_box;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use queue::{Capacity, RingEnds, SlabClass};
use sampler_thread::walk::snapshot::Snapshot;
use tickwalk::handler::install;
use tickwalk::handler::slots::{self, Shared};
use tickwalk::handler::{on_tick, ucontext};

/// Bytes of the stacks.
const SIZES: [u64; 3] = [1 << 10, 8 << 10, 64 << 10];
/// Bytes of stack above the sampled frames, which must exist.
const ABOVE: usize = 128 << 10;
const SLOT: usize = 3;
/// Runs of which the median is taken.
const TIMED: usize = 2_001;
/// Bytes of a `JavaThread` that holds every field at offset 0.
const JAVA_THREAD: [u64; 8] = [0; 8];

fn main() -> Result<(), Box<dyn Error>> {
    let signal = install::choose(None, install::Sender::Timers)?;
    let plan = [SlabClass::fixed(512, 8), SlabClass::fixed(128 << 10, 8)];
    let mut shared = support::shared(signal, &plan, |_| 4_000_000, None);
    (shared.offsets.cont_entry, shared.offsets.saved_exception_pc) = (Some(0), Some(0));
    let shared = slots::publish(shared);
    install::install(signal)?;
    let slot = shared.slots.get(SLOT).ok_or("no slot")?;
    let region = Box::leak(vec![MaybeUninit::uninit(); Capacity::Entries32.bytes() + 64].into_boxed_slice());
    let skip = region.as_ptr().align_offset(8);
    let ring = region.get_mut(skip..).and_then(|region| RingEnds::in_region(Capacity::Entries32, region));
    if slot.queue.install(ring.ok_or("no room")?, Capacity::Entries32).is_err() {
        return Err("the queue has a ring already".into());
    }
    slot.java_thread.store(JAVA_THREAD.as_ptr() as u64, Ordering::Release);
    println!("handler {:x}", on_tick::on_tick as *const () as usize);
    std::io::stdout().flush()?;
    let runs = if std::env::args().nth(1).as_deref() == Some("time") { TIMED } else { 1 };
    let thread = std::thread::Builder::new().stack_size(4 * ABOVE);
    thread.spawn(move || sample_all(shared, signal, runs))?.join().map_err(|_| "a size was not sampled")?;
    Ok(())
}

fn sample_all(shared: &'static Shared, signal: i32, runs: usize) {
    let above = black_box([0_u8; ABOVE]);
    sample_sizes(shared, signal, runs);
    black_box(above);
}

/// Has a frame of its own, so that `place` lies between the interrupted sp and the array of the caller.
#[inline(never)]
fn sample_sizes(shared: &'static Shared, signal: i32, runs: usize) {
    for size in SIZES {
        let place = 0_u8;
        let high = (std::ptr::from_ref(black_box(&place)) as u64 & !15) + size;
        let first = sample(shared, signal, high);
        println!("sampled {first}");
        let high = high + size - first;
        let mut ticks = Vec::with_capacity(runs);
        for run in 0..runs {
            let copied = sample(shared, signal, high);
            if run == 0 {
                println!("sampled {copied}");
            }
            ticks.push(shared.slots[SLOT].last_cycles.load(Ordering::Relaxed));
        }
        ticks.sort_unstable();
        if runs > 1 {
            let ns = |rank: usize| ticks[rank] as f64 * ns_per_tick();
            println!("took {size} bytes: median {:.0} ns, p99 {:.0} ns", ns(runs / 2), ns(runs * 99 / 100));
        }
    }
}

/// Returns the length of a tick of the counter.
fn ns_per_tick() -> f64 {
    let (start, ticks) = (Instant::now(), ucontext::cycles());
    while start.elapsed() < Duration::from_millis(20) {}
    start.elapsed().as_nanos() as f64 / ucontext::cycles().wrapping_sub(ticks) as f64
}

/// Runs the handler once; returns the bytes of the stack that it has copied.
#[inline(never)]
fn sample(shared: &'static Shared, signal: i32, high: u64) -> u64 {
    let slot = &shared.slots[SLOT];
    slot.stack_low.store(16, Ordering::Relaxed);
    slot.stack_high.store(high, Ordering::Release);
    support::send(signal, libc::SI_TIMER, std::ptr::from_ref(slot).cast());
    let requests = slot.queue.try_drain().into_iter().flatten();
    let copied = requests.map(|request| {
        let view = shared.pool.view(request.snapshot, request.snapshot_len as usize);
        view.and_then(|view| Snapshot::read(view.bytes()).map(|snapshot| snapshot.stack.len() as u64))
    });
    copied.flatten().sum()
}
