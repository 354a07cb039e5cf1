//! Threads that have ended: one drain for all of them, and the drain of a thread's own queue at its end.

#[path = "../../stackwalk/tests/support/fixture.rs"]
mod fixture;

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fixture::Fixture;
use proto::v1::{ThreadAccount, agent_message::Body};
use queue::{Capacity, LostCause, Request, RingEnds, SizeRange, SlabClass, SnapshotPool, ThreadQueue};
use sampler_thread::drain::pace::PaceTuning;
use sampler_thread::name::shown::Shown;
use sampler_thread::period::aim::Aim;
use sampler_thread::period::interval::Tuning;
use sampler_thread::process::{Coverage, Gap, Queues, ThreadFacts, ThreadKind, Threads, TimerCounts, Timers};
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::self_test::Capabilities;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::send::sink::{Destinations, Sink, SinkError};
use sampler_thread::settings::Settings;
use sampler_thread::walk::vm::Vm;
use sampler_thread::{Sampler, SessionFacts};

const THREADS: u32 = 3;
const PERIOD_NS: u64 = 1_000_000;
/// Ends a test that fails; nothing here takes long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A call of the sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Call of [`Threads::ended`], which returned at least one thread.
    Ended,
    /// Call of [`Queues::queue`] for this slot; only the first one is noted.
    Queue(u32),
    /// Call of [`Queues::ready`], which begins a drain.
    Ready,
    /// Call of [`Threads::retire`] for this slot.
    Retired(u32),
}

/// A process with a queue for each of [`THREADS`] threads.
struct Process {
    queues: [ThreadQueue; THREADS as usize],
    pool: SnapshotPool<'static>,
    /// True if the queue of the first thread counts as ready.
    is_first_ready: AtomicBool,
    /// The threads that have ended since the sampler asked.
    ended: Mutex<Vec<ThreadFacts>>,
    /// The calls from the first [`Event::Ended`] on.
    events: Mutex<Vec<Event>>,
    rings_taken: AtomicUsize,
    retired: mpsc::Sender<u32>,
}

fn ring(capacity: Capacity) -> RingEnds {
    RingEnds::in_region(capacity, Box::leak(Box::new_uninit_slice(capacity.bytes()))).expect("long enough")
}

/// The thread of a slot, which has ended.
fn ended_thread(slot: u32) -> ThreadFacts {
    ThreadFacts {
        slot,
        id: slot + 1,
        revision: 0,
        tid: 1,
        name: Arc::from("ended"),
        kind: ThreadKind::Java,
        armed_ns: 0,
        carried_ns: 0,
        before_timer_ns: 0,
        coverage: Coverage::default(),
        expired_ns: 0,
        ended_ns: Some(2 * PERIOD_NS),
    }
}

impl Process {
    /// Returns a process, and the slots that the sampler frees.
    fn new() -> (&'static Self, mpsc::Receiver<u32>) {
        let plan = [SlabClass::fixed(512, 2)];
        let region = Box::leak(Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + queue::SLAB_ALIGN));
        let (retired, freed) = mpsc::channel();
        let process = Self {
            queues: std::array::from_fn(|_| ThreadQueue::new()),
            pool: SnapshotPool::new(region, &plan).expect("a plan"),
            is_first_ready: AtomicBool::new(false),
            ended: Mutex::default(),
            events: Mutex::default(),
            rings_taken: AtomicUsize::new(0),
            retired,
        };
        for queue in &process.queues {
            assert!(queue.install(ring(Capacity::Entries16), Capacity::Entries16).is_ok());
        }
        (Box::leak(Box::new(process)), freed)
    }

    /// Pushes a request as the handler of the slot's thread; returns whether the queue had a free entry.
    fn push(&self, slot: u32) -> bool {
        // SAFETY: only the thread of the test pushes.
        unsafe { self.queues[slot as usize].push(Request::default()) }.is_ok()
    }

    fn note(&self, event: Event) {
        let mut events = self.events.lock().expect("no panic");
        let is_new = event != Event::Ready || events.last() != Some(&event);
        if is_new && !events.is_empty() && !(matches!(event, Event::Queue(_)) && events.contains(&event)) {
            events.push(event);
        }
    }
}

impl Queues for &'static Process {
    fn ready(&self) -> Vec<u32> {
        self.note(Event::Ready);
        if self.is_first_ready.load(Ordering::Acquire) { vec![0] } else { Vec::new() }
    }

    fn queue(&self, slot: u32) -> &ThreadQueue {
        self.note(Event::Queue(slot));
        &self.queues[slot as usize]
    }

    fn pool(&self) -> &SnapshotPool<'static> {
        &self.pool
    }

    fn take_ring(&self, size: Capacity) -> Option<RingEnds> {
        self.rings_taken.fetch_add(1, Ordering::Relaxed);
        Some(ring(size))
    }

    fn give_back_ring(&self, _ring: RingEnds) {}

    fn adopt_ring(&self, _slot: u32) {}

    fn release_pages(&self, _bytes: &mut [MaybeUninit<u8>]) {}
}

impl Threads for &'static Process {
    fn discover(&self) {}

    fn library_loads(&self) -> Option<u64> {
        Some(0)
    }

    fn thread(&self, slot: u32) -> Option<ThreadFacts> {
        Some(ended_thread(slot))
    }

    fn threads(&self) -> Vec<ThreadFacts> {
        Vec::new()
    }

    fn next_thread_id(&self) -> u32 {
        THREADS + 1
    }

    fn ended(&self) -> Vec<ThreadFacts> {
        let ended = std::mem::take(&mut *self.ended.lock().expect("no panic"));
        if !ended.is_empty() {
            self.events.lock().expect("no panic").push(Event::Ended);
        }
        ended
    }

    fn retire(&self, slot: u32, _handed_on_ns: u64) {
        self.note(Event::Retired(slot));
        self.retired.send(slot).expect("received");
    }
}

impl Timers for &'static Process {
    fn drain_begins(&self) {}

    fn rotate(&self) -> bool {
        false
    }

    fn period_ns(&self, _index: u8) -> u64 {
        PERIOD_NS
    }

    fn aim(&self, _aim: Aim) -> bool {
        true
    }

    fn retune(&self) {}

    fn measure_tick(&self, _max_cpu_ns: u64) -> Option<u64> {
        None
    }

    fn timer_counts(&self) -> TimerCounts {
        TimerCounts::default()
    }

    fn examine_silent(&self, _slots: &[u32]) {}

    fn has_handler(&self) -> bool {
        true
    }

    fn has_descriptors(&self) -> bool {
        true
    }

    fn stop(&self, _gap: Option<Gap>) {}
}

/// Keeps the accounts of ended threads.
struct Accounts(Arc<Mutex<Vec<ThreadAccount>>>);

impl Sink for Accounts {
    fn send(&mut self, body: &Body) -> Result<(), SinkError> {
        if let Body::Statistics(statistics) = body {
            let ended = statistics.threads.iter().filter(|account| account.ended).cloned();
            self.0.lock().expect("no panic").extend(ended);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn name(&self) -> String {
        "test".to_owned()
    }
}

/// Starts a sampler thread; returns it with the accounts that it will send.
fn start(process: &'static Process, pace: PaceTuning) -> (Sampler, Arc<Mutex<Vec<ThreadAccount>>>) {
    let (code, redefinition) = (CodeFreeing::default(), Redefinition::default());
    let (none, now) = (Duration::ZERO, || 1);
    let unloading = Unloading::new(Detector::Pauses, code, redefinition, none, now, Vec::new());
    let settings = Settings {
        unloading: Arc::new(unloading),
        routines: Arc::default(),
        examine: Box::new(|| (Capabilities::ALL, Vec::new())),
        max_frames: 2048,
        shown: Shown::default(),
        duration: None,
        process_cpu_before_ns: 0,
        queue_sizes: SizeRange { start: Capacity::Entries16, most: Capacity::Entries64 },
        pace,
        tuning: Tuning { interval_ns: PERIOD_NS, ..Tuning::default() },
        traces: None,
        observer: None,
    };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stackwalk/tests/fixtures");
    let memory = Fixture::load(&fixtures.join("jdk21-x86_64/stacks.bin"));
    let vm = Vm { hotspot: Arc::new(memory.hotspot()), memory };
    let accounts = Arc::default();
    let mut destinations = Destinations::default();
    destinations.add(Box::new(Accounts(Arc::clone(&accounts))));
    let sampler =
        Sampler::start(process, settings, vm, SessionFacts::default(), destinations, |_| {}, |_| {});
    (sampler.expect("a thread"), accounts)
}

#[test]
fn one_drain_is_for_all_ended_threads() {
    let (process, freed) = Process::new();
    for slot in 0..THREADS {
        assert!(process.push(slot) && process.push(slot));
    }
    process.ended.lock().expect("no panic").extend((0..THREADS).map(ended_thread));
    // Only the sampler drains.
    let exact = PaceTuning { period: Some(Duration::from_millis(1)), pause: None };
    let (sampler, accounts) = start(process, exact);
    for slot in 0..THREADS {
        assert_eq!(freed.recv_timeout(PATIENCE), Ok(slot));
    }
    assert!(sampler.stop("test", PATIENCE).join().is_none());
    let events = process.events.lock().expect("no panic");
    let [queues, retired] = [Event::Queue, Event::Retired].map(|event| (0..THREADS).map(event));
    let expected: Vec<Event> =
        [Event::Ended].into_iter().chain(queues).chain([Event::Ready]).chain(retired).collect();
    assert_eq!(events[..expected.len()], expected);
    let samples: Vec<u64> = accounts.lock().expect("no panic").iter().map(|it| it.samples).collect();
    assert_eq!(samples, [2; THREADS as usize]);
}

#[test]
fn the_last_drain_of_a_thread_sizes_nothing() {
    let (process, _freed) = Process::new();
    while process.push(0) {}
    process.queues[0].lost().add(LostCause::QueueFull, PERIOD_NS);
    let (sampler, _) = start(process, PaceTuning::default());
    // Another thread may be emptying queues meanwhile, of which this is none.
    while !process.push(0) {
        sampler.drain_ended(0);
    }
    assert_eq!(process.rings_taken.load(Ordering::Relaxed), 0, "the thread ends");
    process.is_first_ready.store(true, Ordering::Release);
    assert!(sampler.flush(PATIENCE));
    assert_eq!(process.rings_taken.load(Ordering::Relaxed), 1, "a drain makes room for what was lost");
    assert!(sampler.stop("test", PATIENCE).join().is_none());
}
