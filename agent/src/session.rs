//! The order of things: what is made before the first tick, and what is taken down after the last.
//!
//! Problem: a handler may run on any thread from the moment a timer exists until the process is gone.
//! Approach: [`Prepared`] holds what Agent_OnLoad can make (options, VM tables, destinations); [`Session::start`] makes the
//! rest at VMInit in the order layout, memory, publication, handler, sampler, timers; [`Session::stop`] takes down in
//! the opposite order: timers, handlers in flight, sampler. Memory that handlers touch is never freed.
//! Invariant: every error leaves the JVM running without us.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use queue::{ReadySet, SnapshotPool};
use sampler_thread::account::clock;
use sampler_thread::period::interval::Tuning;
use sampler_thread::send::delivery::{Delivery, Target, TlsError};
use sampler_thread::send::sink::{Destinations, FileSink};
use sampler_thread::validity::code_freeing::CodeFreeing;
use sampler_thread::validity::redefinition::Redefinition;
use sampler_thread::validity::unloading::{Detector, Unloading};
use sampler_thread::{Sampler, SessionFacts};
use stackwalk::{FrozenOffsets, HotSpot, LiveMemory, Memory, MountedOffsets, ThreadOffsets};

use crate::arena::{self, Shared};
use crate::jvmti::chunks::FIRST_WITH_VIRTUAL_THREADS;
use crate::jvmti::flags::{self, DebugNonSafepoints};
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::pauses::{self, Gate};
use crate::jvmti::vm::{AtStart, Vm};
use crate::jvmti::{Jvmti, JvmtiError, ThreadRef, vm_memory};
use crate::log;
use crate::options::{Collector, Options};
use crate::rings::RingMemory;
use crate::scheduling;
use crate::self_test::Subject;
use crate::signal::own_stack::{self, BlockOffset};
use crate::signal::ucontext::cycles;
use crate::signal::{self, SignalError};
use crate::slabs;
use crate::threads::{JavaThread, Registry, SampledProcess};

/// Longest wait for the last samples to be delivered when the JVM ends.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for handlers that are running when profiling stops; one takes microseconds.
const HANDLER_PATIENCE: Duration = Duration::from_millis(100);

/// Why profiling cannot start. The text of each is one line for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The VM offers no usable JVMTI.
    Jvmti(JvmtiError),
    /// The VM is not a HotSpot we can read.
    UnsupportedVm {
        /// `java.vm.name` and version.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The recording file cannot be written.
    File {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The certificates for the collector cannot be used.
    Certificates {
        /// Its address.
        address: String,
        /// Why.
        error: TlsError,
    },
    /// Samples would cross a network unencrypted.
    Unencrypted {
        /// The collector's address.
        address: String,
    },
    /// No signal.
    Signal(SignalError),
    /// Memory for queues and copies could not be mapped.
    Memory(std::io::Error),
    /// The sampler thread could not be started.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Jvmti(error) => write!(f, "this JVM offers no JVMTI 1.2 ({error})"),
            Self::UnsupportedVm { name, reason } => {
                write!(f, "unsupported JVM: {name} ({reason}); Tickwalk needs HotSpot 11 or newer")
            }
            Self::File { path, error } => write!(f, "cannot write file={path}: {error}"),
            Self::Certificates { address, error } => write!(f, "collector=tls:{address}: {error}"),
            Self::Unencrypted { address } => write!(
                f,
                "collector={address} is not on this machine: use collector=tls:{address}, or add insecure to send \
                 samples unencrypted"
            ),
            Self::Signal(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "cannot map memory: {error}"),
            Self::Thread(error) => write!(f, "cannot start the sampler thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What Agent_OnLoad makes.
pub struct Prepared {
    options: Options,
    jvmti: Jvmti,
    hotspot: HotSpot,
    mounted: Option<MountedOffsets>,
    /// File of the VM's library, and where its first byte lies.
    library: (PathBuf, u64),
    memory: &'static LiveMemory,
    destinations: Destinations,
    collector: Option<Target>,
    hears_pauses: bool,
    /// Whether the program runs already.
    is_attached: bool,
}

impl Prepared {
    /// Reads the VM's tables, switches DebugNonSafepoints on and opens the destinations.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind but an empty recording file.
    pub fn new(options: Options, vm: Vm, at_start: Option<AtStart>) -> Result<Self, StartError> {
        let jvmti = vm.jvmti().map_err(StartError::Jvmti)?;
        let is_attached = at_start.is_none();
        let unsupported = |reason: String| unsupported(&jvmti, reason);
        let library = vm.library().ok_or_else(|| unsupported("its library was not found".to_owned()))?;
        let memory = vm_memory::of_library(&library);
        let hotspot = HotSpot::read_tables(|name| library.symbol(name), memory)
            .map_err(|error| unsupported(error.to_string()))?;
        let collector =
            options.collector.as_ref().map(|collector| target(collector, &options)).transpose()?;
        let destinations = open_file(&options)?;
        if let Some(at_start) = at_start
            && flags::switch_on(&hotspot, memory, at_start) == DebugNonSafepoints::ChosenByUser
        {
            tracing::info!("DebugNonSafepoints stays as it was chosen on the command line");
        }
        let has_virtual_threads = hotspot.jdk_major() >= FIRST_WITH_VIRTUAL_THREADS;
        let mounted = has_virtual_threads.then(|| vm_memory::mounted_offsets(&library, memory)).flatten();
        let library = library.origin();
        Ok(Self {
            options,
            jvmti,
            hotspot,
            mounted,
            library,
            memory,
            destinations,
            collector,
            hears_pauses: false,
            is_attached,
        })
    }

    /// Notes that garbage collection pauses will be told.
    pub fn hears_pauses(&mut self) {
        self.hears_pauses = true;
    }

    /// The JVMTI environment.
    pub fn jvmti(&self) -> Jvmti {
        self.jvmti
    }
}

fn unsupported(jvmti: &Jvmti, reason: String) -> StartError {
    let property = |name| jvmti.system_property(name).unwrap_or_else(|| "unknown".to_owned());
    StartError::UnsupportedVm {
        name: format!("{} {}", property("java.vm.name"), property("java.vm.version")),
        reason,
    }
}

fn open_file(options: &Options) -> Result<Destinations, StartError> {
    let mut destinations = Destinations::default();
    if let Some(path) = &options.file {
        let file = FileSink::create(path)
            .map_err(|error| StartError::File { path: path.display().to_string(), error })?;
        destinations.add(Box::new(file));
    }
    Ok(destinations)
}

/// The collector as something to connect to; whether it answers is found out later, and again and again.
fn target(collector: &Collector, options: &Options) -> Result<Target, StartError> {
    let target = match collector {
        Collector::Unix(path) => Target::Unix(path.clone()),
        Collector::Tcp(address) => Target::Tcp { address: address.clone(), insecure: options.insecure },
        Collector::Tls(address) => Target::tls(address, options.certificates.as_deref())
            .map_err(|error| StartError::Certificates { address: address.clone(), error })?,
    };
    if target.is_unencrypted_network() {
        return Err(StartError::Unencrypted { address: target.to_string() });
    }
    Ok(target)
}

/// A running profile.
pub struct Session {
    registry: Arc<Registry>,
    shared: &'static Shared,
    sampler: Sampler,
    /// Address of a thread's JNI environment minus that of its `JavaThread`; the same for all threads of a VM.
    env_offset: Option<u64>,
    offsets: ThreadOffsets,
    jvmti: Jvmti,
    memory: &'static LiveMemory,
}

impl Session {
    /// The JVMTI environment.
    pub fn jvmti(&self) -> Jvmti {
        self.jvmti
    }

    /// Starts profiling; the VM is initialised and the calling thread, a Java thread, is `thread`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(prepared: Prepared, jni: Jni, thread: Option<ThreadRef>) -> Result<Self, StartError> {
        let Prepared {
            options,
            jvmti,
            mut hotspot,
            mounted,
            library,
            memory,
            mut destinations,
            collector,
            hears_pauses,
            is_attached,
        } = prepared;
        hotspot.start(memory).map_err(|error| unsupported(&jvmti, error.to_string()))?;
        vm_memory::add_code_heaps(memory, &hotspot);
        let mut offsets = hotspot.thread_offsets();
        offsets.mounted = mounted;
        if options.debug.broken_layout {
            hotspot.break_layout();
        }
        let begin = Instant::now();
        let evidence = Subject { hotspot: &hotspot, memory, jvmti, jni }.evidence();
        tracing::info!("evidence for the self-test took {} us", begin.elapsed().as_micros());
        let signal = signal::choose(options.signal).map_err(StartError::Signal)?;
        let frozen = frozen_offsets(jni, &hotspot, memory);
        let (shared, rings) = make_shared(&options, offsets, frozen, signal)?;
        signal::install(signal).map_err(StartError::Signal)?;
        let registry = Arc::new(Registry::new(shared, rings, signal));
        if is_attached {
            registry.begin_now();
        }
        let session = session_facts(&options, &jvmti, &hotspot);
        if let Some(target) = collector {
            let excluded = Arc::clone(&registry);
            let on_thread = Box::new(move |tid| excluded.exclude(tid));
            let delivery = Delivery::new(target, options.token.clone(), options.window, on_thread)
                .map_err(StartError::Thread)?;
            destinations.add(Box::new(delivery));
        }
        let detector = Detector::choose(&hotspot, memory, hears_pauses);
        tracing::info!("class unloading is detected by: {}", detector.name());
        let freeing = CodeFreeing::choose(&hotspot, memory);
        let unloading = Arc::new(Unloading::new(
            detector,
            freeing,
            Redefinition::choose(&hotspot, memory, Some(library)),
            options.pause_budget,
            cycles,
            jni.permanent_loaders(),
        ));
        let hotspot = Arc::new(hotspot);
        let host = SampledProcess {
            registry: Arc::clone(&registry),
            memory,
            hotspot: Arc::clone(&hotspot),
            unloading: Arc::clone(&unloading),
            evidence,
            tuning: Tuning {
                interval_ns: nanos(options.interval),
                rate: options.rate,
                budget_ppm: options.budget_ppm,
                hook: options.debug.retune,
            },
            debug: options.debug,
        };
        let sampler = start_sampler(host, Arc::clone(&hotspot), memory, session, destinations)?;
        if hears_pauses {
            let (registry, waker) = (Arc::clone(&registry), sampler.waker());
            let gate = Gate { unloading, waker, registry, memory };
            if let Err(error) = pauses::open(&jvmti, gate) {
                log::complain(&format!("garbage collection pauses are not seen: {error}"));
            }
        }
        let mut session = Self { registry, shared, sampler, env_offset: None, offsets, jvmti, memory };
        if let Some(address) =
            thread.and_then(|thread| jni.java_thread(thread)).filter(|address| *address != 0)
        {
            session.env_offset = Some(jni.address().wrapping_sub(address));
        }
        #[cfg(feature = "hooks")]
        if let Some(observer) = crate::hooks::observer() {
            let env_offset = session.env_offset.unwrap_or(0);
            (observer.started)(&crate::hooks::ObservedVm { jvmti, env_offset, hotspot, memory });
        }
        tracing::info!("profiling every {:?} of CPU time with signal {signal}", options.interval);
        Ok(session)
    }

    /// Registers the Java threads that are running already; to be called once ThreadEnd is told, or a thread that ends
    /// meanwhile would keep the address of a `JavaThread` that is gone.
    pub fn adopt_existing(&self, jni: Jni) {
        for thread in self.jvmti.all_threads() {
            let Some(address) = jni.java_thread(thread).filter(|address| *address != 0) else {
                continue;
            };
            self.adopt(address, thread, Registry::java_found);
        }
    }

    /// Registers the calling Java thread.
    pub fn thread_started(&self, jni: Jni, thread: ThreadRef) {
        let address = match self.env_offset {
            Some(offset) => Some(jni.address().wrapping_sub(offset)),
            None => jni.java_thread(thread),
        };
        if let Some(address) = address.filter(|address| *address != 0) {
            self.adopt(address, thread, Registry::java_started);
        }
    }

    fn adopt(&self, address: u64, thread: ThreadRef, register: fn(&Registry, i32, &JavaThread)) {
        let Some(tid) = self.tid_of(address) else { return };
        let base = self.memory.read_u64(address + u64::from(self.offsets.stack_base)).unwrap_or(0);
        let size = self.memory.read_u64(address + u64::from(self.offsets.stack_size)).unwrap_or(0);
        let name = self.jvmti.thread_name(thread).unwrap_or_default();
        let (stack_low, stack_high) = (base.saturating_sub(size), base);
        register(&self.registry, tid, &JavaThread { address, stack_low, stack_high, name });
    }

    fn tid_of(&self, address: u64) -> Option<i32> {
        let os_thread = self.memory.read_u64(address + u64::from(self.offsets.osthread)).ok()?;
        let tid = self.memory.read_i32(os_thread + u64::from(self.offsets.osthread_thread_id)).ok()?;
        (tid > 0).then_some(tid)
    }

    /// Unregisters the calling Java thread, which empties its queue if nobody else is at one.
    pub fn thread_ended(&self) {
        if let Some(slot) = self.registry.java_ended(nix::unistd::gettid().as_raw()) {
            self.sampler.leave(slot);
        }
    }

    /// Stops: timers first, then handlers in flight, then the sampler with all that is queued. The sampler thread if it
    /// is not done with that in time.
    pub fn stop(self, reason: &'static str) -> Option<JoinHandle<()>> {
        pauses::close();
        self.registry.stop();
        self.shared.stopping.store(true, Ordering::Release);
        // The handlers' flags are plain stores, visible within nanoseconds. One that has only just begun may be
        // overlooked: its request then stays in its queue, and its time shows as unfinished.
        let deadline = Instant::now() + HANDLER_PATIENCE;
        while self.registry.any_busy() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        #[cfg(feature = "hooks")]
        if let Some(observer) = crate::hooks::observer() {
            (observer.ending)(&self.jvmti);
        }
        let unfinished = self.sampler.stop(reason, STOP_PATIENCE);
        if unfinished.is_some() {
            tracing::warn!("the last samples were not delivered within {STOP_PATIENCE:?}");
        }
        unfinished
    }
}

/// How to follow virtual threads into the heap, kept for ever; `None` where that is not possible, and their stacks end
/// at the return barrier.
fn frozen_offsets(jni: Jni, hotspot: &HotSpot, memory: &LiveMemory) -> Option<&'static FrozenOffsets> {
    let class = jni.chunk_class(hotspot, memory)?;
    Some(Box::leak(Box::new(hotspot.frozen_offsets(memory, class)?)))
}

/// Asked on a thread that the C library makes: the calling one may be the process's first.
fn block_offset() -> Option<BlockOffset> {
    let thread = std::thread::Builder::new().spawn(own_stack::find).ok()?;
    thread.join().ok().flatten()
}

/// Makes everything handlers touch, in one stretch of memory that starts with what every tick touches: flags, queues
/// of the first threads, slabs of ordinary stacks.
fn make_shared(
    options: &Options,
    offsets: ThreadOffsets,
    frozen: Option<&'static FrozenOffsets>,
    signal: i32,
) -> Result<(&'static Shared, RingMemory), StartError> {
    let former = arena::shared();
    let previous = signal::previous_action(signal, former).map_err(StartError::Signal)?;
    arena::release_former();
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let plan = slabs::plan(processors, options.debug.slabs);
    let flag_bytes = arena::MAX_THREADS as usize;
    let start = options.debug.queues.start;
    let ring_bytes = RingMemory::near_bytes(start);
    let bytes = flag_bytes + ring_bytes + SnapshotPool::bytes_needed(&plan);
    let region = arena::map_forever_hot(bytes).map_err(StartError::Memory)?;
    let (flags, region) = region.split_at_mut(flag_bytes);
    let (rings, slabs) = region.split_at_mut(ring_bytes);
    let pool = SnapshotPool::new(slabs, &plan)
        .map_err(|error| StartError::Memory(std::io::Error::other(error.to_string())))?;
    let shared = arena::publish(Shared {
        slots: arena::map_slots().map_err(StartError::Memory)?,
        pool,
        ready: ReadySet::new(arena::flags_in(flags)),
        periods: std::array::from_fn(|number| {
            AtomicU64::new(if number == 0 { nanos(options.interval) } else { 0 })
        }),
        max_stack: options.max_stack as u64,
        offsets,
        frozen,
        block: block_offset(),
        stopping: AtomicBool::new(false),
        signal,
        previous,
        former,
    });
    let rings = RingMemory::new(start, rings).map_err(StartError::Memory)?;
    Ok((shared, rings))
}

fn start_sampler(
    host: SampledProcess,
    hotspot: Arc<HotSpot>,
    memory: &'static LiveMemory,
    session: SessionFacts,
    destinations: Destinations,
) -> Result<Sampler, StartError> {
    let excluded = Arc::clone(&host.registry);
    let started = move |tid| {
        excluded.exclude(tid);
        scheduling::shorten_time_slices();
    };
    Sampler::start(host, hotspot, memory, session, destinations, started).map_err(StartError::Thread)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn session_facts(options: &Options, jvmti: &Jvmti, hotspot: &HotSpot) -> SessionFacts {
    let property = |name| jvmti.system_property(name).unwrap_or_default();
    // A fresh RandomState is seeded by the kernel; hashing nothing with it gives 64 random bits.
    let session_id = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let host = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
    SessionFacts {
        magic: sampler_thread::MAGIC,
        wire_version: sampler_thread::WIRE_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        session_id,
        pid: std::process::id(),
        jvm_version: property("java.vm.version"),
        jvm_name: property("java.vm.name"),
        jdk_major: hotspot.jdk_major(),
        command: property("sun.java.command"),
        host: host.trim_end().to_owned(),
        interval_ns: nanos(options.interval),
        kernel_tick_ns: clock::kernel_tick_nanos(),
        wall_clock_ns: clock::wall_nanos(),
        monotonic_ns: clock::monotonic_nanos(),
        token: String::new(),
    }
}
