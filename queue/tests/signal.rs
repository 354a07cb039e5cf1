//! A real CPU timer of one thread pushes from its signal handler while another thread drains.

#![cfg(all(target_os = "linux", not(loom)))]
#![allow(missing_docs)]

use queue::{Capacity, LostCause, ReadySet, Request, RingStorage, SlabClass, SnapshotPool, ThreadQueue};
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;

const INTERVAL_NS: u64 = 1_000_000;
/// More signals than the ring holds entries while nothing drains it, so that losses must occur.
const TICKS_UNDRAINED: u64 = 24;
const TICKS_DRAINED: u64 = 60;
const INDEX: u32 = 3;

static FLAGS: [AtomicU8; 8] = [const { AtomicU8::new(0) }; 8];

/// The value that the timer passes to the handler.
struct Context {
    queue: ThreadQueue,
    ready: ReadySet<'static>,
    pool: SnapshotPool<'static>,
    /// Deliveries, counted by the handler beside the queue.
    ticks: AtomicU64,
}

extern "C" fn on_signal(_signal: c_int, info: *mut libc::siginfo_t, _ucontext: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let info = unsafe { &*info };
    // SAFETY: a timer signal carries its sigval.
    let value = unsafe { info.si_value() };
    // SAFETY: the one timer of this process carries the address of a context that is never freed.
    let context = unsafe { &*value.sival_ptr.cast::<Context>() };
    let number = context.ticks.fetch_add(1, Ordering::Relaxed) + 1;
    let mut request = Request { pc: number, sp: !number, ticks: number, ..Request::default() };
    if let Some(mut slab) = context.pool.acquire(64) {
        // SAFETY: slabs have at least 64 bytes.
        unsafe { slab.as_mut_ptr().write_bytes(number as u8, 64) };
        // SAFETY: written just above.
        request.snapshot = unsafe { slab.publish(64) };
        request.snapshot_len = 64;
    }
    // SAFETY: only this handler pushes, on the one thread the timer signals, with the signal masked.
    match unsafe { context.queue.push(request) } {
        Ok(()) => context.ready.mark(INDEX),
        Err(refused) => {
            context.pool.release(refused.snapshot);
            context.queue.lost().add(LostCause::QueueFull, refused.cpu_ns(INTERVAL_NS));
        }
    }
}

/// A timer on the calling thread's CPU clock; deleted on drop.
struct CpuTimer(libc::timer_t);

impl CpuTimer {
    fn start(context: &'static Context) -> Self {
        // SAFETY: zeroes are a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the action is complete and the handler matches its flags.
        let installed = unsafe { libc::sigaction(libc::SIGRTMIN(), &action, ptr::null_mut()) };
        assert_eq!(installed, 0);
        // SAFETY: zeroes are a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGRTMIN();
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        event.sigev_value.sival_ptr = ptr::from_ref(context).cast_mut().cast();
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are to live values of the right type.
        let created = unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) };
        assert_eq!(created, 0);
        let period = libc::timespec { tv_sec: 0, tv_nsec: INTERVAL_NS as i64 };
        let spec = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was just created.
        let armed = unsafe { libc::timer_settime(timer, 0, &spec, ptr::null_mut()) };
        assert_eq!(armed, 0);
        Self(timer)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the timer exists until here.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn burn_until(context: &Context, ticks: u64) {
    let mut work = 0u64;
    while context.ticks.load(Ordering::Relaxed) < ticks {
        work = black_box(work.wrapping_mul(31).wrapping_add(7));
    }
}

#[test]
fn the_account_closes_under_real_signals() {
    let queue = ThreadQueue::new();
    let ends = Box::leak(Box::new(RingStorage::<17>::new())).split();
    assert!(queue.install(ends, Capacity::Entries16).is_ok());
    let plan = [SlabClass::fixed(64, 32)];
    let region = Box::leak(Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + 63));
    let pool = SnapshotPool::new(region, &plan).unwrap();
    let context: &'static Context =
        Box::leak(Box::new(Context { queue, ready: ReadySet::new(&FLAGS), pool, ticks: AtomicU64::new(0) }));
    let ended = AtomicBool::new(false);

    let mut numbers = Vec::new();
    thread::scope(|scope| {
        let timer = CpuTimer::start(context);
        burn_until(context, TICKS_UNDRAINED);
        let drainer = scope.spawn(|| {
            let mut numbers = Vec::new();
            loop {
                // Read before the sweep, so that the sweep after the last signal is complete.
                let last = ended.load(Ordering::Acquire);
                for index in context.ready.take(INDEX + 1) {
                    assert_eq!(index, INDEX);
                    for request in context.queue.try_drain().expect("this thread alone drains") {
                        assert_eq!(request.sp, !request.pc);
                        let view = context.pool.view(request.snapshot, 64).expect("slabs outnumber entries");
                        assert_eq!(view.bytes(), [request.pc as u8; 64]);
                        numbers.push(request.pc);
                    }
                }
                if last {
                    return numbers;
                }
                thread::yield_now();
            }
        });
        burn_until(context, TICKS_UNDRAINED + TICKS_DRAINED);
        drop(timer);
        ended.store(true, Ordering::Release);
        numbers = drainer.join().unwrap();
    });

    let ticks = context.ticks.load(Ordering::Relaxed);
    let lost = context.queue.lost().snapshot()[LostCause::QueueFull.index()];
    assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "in order, each once");
    assert_eq!(numbers.len() as u64 + lost.count, ticks);
    assert!(lost.count >= TICKS_UNDRAINED - 16, "the ring holds 16 and nobody drained at first");
    assert!(numbers.len() as u64 >= 16 && numbers.starts_with(&[1, 2, 3]), "the oldest are kept");
    assert_eq!(lost.nanos, lost.count * INTERVAL_NS);
    assert_eq!(context.pool.stats().in_use(), 0, "every slab came back");
}
