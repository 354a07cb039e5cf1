//! The start of a profile in a VM that is initialised, in five steps.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Once, OnceLock};
use std::time::Instant;

use sampler_thread::clock::process_cpu_nanos;
use sampler_thread::drain::traces::Traces;
use sampler_thread::native::variables::HiddenSymbols;
use sampler_thread::period::aim::{Aim, Clock};
use sampler_thread::period::interval::Tuning;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::send::delivery::{Delivery, Limits, Reach, Target};
use sampler_thread::send::sink::Destinations;
use sampler_thread::settings::Settings;
use sampler_thread::walk::routines::Routines;
use sampler_thread::walk::vm::Vm as ReadVm;
use sampler_thread::{End, Sampler};
use stackwalk::{FrozenOffsets, HotSpot, LayoutError, SafeFetch, ThreadOffsets};

use super::Session;
use super::prepared::{self, Host, PreparedSession};
use crate::clock::time_source;
use crate::guest::scheduling;
use crate::handler::compilation::Compilers;
use crate::handler::extra_signals::Carriers;
use crate::handler::install;
use crate::handler::memory::{self, Room, VmFields};
use crate::handler::rings::RingMemory;
use crate::handler::slots::Shared;
use crate::handler::ucontext;
use crate::hooks::{self, ObservedVm};
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{ThreadRef, routines, safe_fetch, thread_key, vm_memory};
use crate::profile::facts;
use crate::profile::pauses::{self, Gate};
use crate::profile::refusal::Refusal;
use crate::threads::kernel;
use crate::threads::trace_thread::{Asker, TraceThread};
use crate::threads::{JavaThreads, Registry, SampledProcess, ThreadFiles};
use crate::vm::self_test::{self, Evidence, Subject};
use crate::vm::tables::{Preparation, VmTables};
use crate::vm::thread_layout;
use agent_options::{ClockOption, Mode, Options};

/// The inputs of all steps.
struct Start {
    options: Options,
    host: Host,
    jni: Jni,
    /// The calling Java thread, if it is known.
    thread: Option<ThreadRef>,
    tuning: Tuning,
    has_pause_events: bool,
}

/// The VM, whose layouts are checked.
struct CheckedVm {
    hotspot: HotSpot,
    offsets: ThreadOffsets,
    frozen: Option<&'static FrozenOffsets>,
    compilers: Option<Compilers>,
    /// The stack for the self-test.
    evidence: Option<Evidence>,
}

/// The signal handler and its memory.
struct Handler {
    shared: &'static Shared,
    rings: RingMemory,
    aim: Aim,
    /// Reads the clock of the handler's time stamps.
    now: fn() -> u64,
}

/// Parts that the sampler thread shares with the callbacks of the VM and the thread of `mode=jvmti`.
struct Parts {
    symbols: Arc<HiddenSymbols>,
    unloading: Arc<Unloading>,
    routines: Arc<Routines>,
    traces: Option<Arc<Traces>>,
}

impl Session {
    /// Starts profiling in a VM that is initialised; `thread` is the calling Java thread, if it is known. If the
    /// sampler thread ends by itself, it calls `ended` last.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn start(
        prepared: PreparedSession,
        jni: Jni,
        thread: Option<ThreadRef>,
        ended: fn(End),
    ) -> Result<Self, Refusal> {
        let PreparedSession { options, host, preparation, destinations, collector, .. } = prepared;
        let PreparedSession { has_pause_events, signal, is_attached, is_chosen, .. } = prepared;
        let tuning = tuning(&options);
        let start = Start { options, host, jni, thread, tuning, has_pause_events };
        let (vm, room) = start.check_vm(preparation)?;
        let handler = start.install_handler(&vm, room, signal)?;
        let Handler { shared, now, .. } = handler;
        let registry = Arc::new(start.registry(handler, is_chosen));
        let process_cpu_before_ns = if is_attached {
            registry.exclude_time_until_now();
            process_cpu_nanos()
        } else {
            0
        };
        let (destinations, reach) = start.destinations(destinations, collector, &registry)?;
        let CheckedVm { hotspot, offsets, evidence, .. } = vm;
        let hotspot = Arc::new(hotspot);
        let parts = start.parts(&hotspot, now);
        let settings = start.settings(&parts, &hotspot, evidence, process_cpu_before_ns);
        let sampler = start.sampler(&parts, &hotspot, &registry, settings, destinations, ended)?;
        let java_threads = start.open_events(&parts, &registry, &sampler, offsets);
        let asking = start.trace_thread(parts, &registry, now)?;
        let (jvmti, hooks) = (start.host.jvmti, start.options.debug.hooks);
        let session = Self { jvmti, registry, java_threads, shared, sampler, reach, asking, hooks };
        start_hooks(&session, &start, hotspot)?;
        Ok(session)
    }
}

/// Step 1: the VM's layout.
impl Start {
    /// Waits for the tables of the VM and for the memory of the handlers, and checks the layout by the calling thread.
    fn check_vm(&self, preparation: Preparation) -> Result<(CheckedVm, Option<Room>), Refusal> {
        let Host { memory, jvmti, .. } = self.host;
        let unsupported = |error: LayoutError| self.host.unsupported(error);
        let (room, tables) = preparation.finish().map_err(Refusal::NoThread)?;
        let VmTables { mut hotspot, mounted } = tables.map_err(unsupported)?;
        prepared::check_mode(self.options.mode, &hotspot)?;
        vm_memory::start(&mut hotspot, memory).map_err(unsupported)?;
        let offsets = ThreadOffsets { mounted, ..hotspot.thread_offsets() };
        let own_address = self.thread.and_then(|thread| self.jni.java_thread(thread));
        if let Some(address) = own_address {
            let sp = std::ptr::from_ref(&address) as u64;
            if let Some(field) = thread_layout::wrong_field(memory, address, sp, &offsets) {
                return Err(self.host.unsupported(format!("unknown layout of JavaThread: {field}")));
            }
        }
        if hooks::ENABLED && self.options.debug.hooks.broken_layout {
            hotspot.break_layout();
        }
        let begin = Instant::now();
        let evidence = Subject { hotspot: &hotspot, memory, jvmti, jni: self.jni }.evidence();
        tracing::info!("evidence for the self-test took {} us", begin.elapsed().as_micros());
        let frozen = self.frozen_offsets(&hotspot);
        let compilers = own_address
            .zip(offsets.compiler)
            .and_then(|(address, offsets)| Some(Compilers { key: thread_key::find(address)?, offsets }));
        Ok((CheckedVm { hotspot, offsets, frozen, compilers, evidence }, room))
    }

    /// Returns the offsets for virtual threads' frames in the heap, which are never freed; `None` if these frames
    /// cannot be followed, and stacks end at the return barrier.
    fn frozen_offsets(&self, hotspot: &HotSpot) -> Option<&'static FrozenOffsets> {
        static OFFSETS: OnceLock<Option<FrozenOffsets>> = OnceLock::new();
        let memory = self.host.memory;
        let find = || hotspot.frozen_offsets(memory, self.jni.chunk_class(hotspot, memory)?);
        OFFSETS.get_or_init(find).as_ref()
    }
}

/// Step 2: the signal handler and its memory.
impl Start {
    fn install_handler(&self, vm: &CheckedVm, room: Option<Room>, signal: i32) -> Result<Handler, Refusal> {
        let Self { options, tuning, .. } = self;
        let uses_clock = time_source::is_counter_unreliable() || options.debug.uses_clock();
        tracing::info!("time stamps: {}", if uses_clock { "monotonic clock" } else { "time stamp counter" });
        // Another agent may have taken the signal since it was chosen.
        let signal = match options.signal {
            None if !install::is_free(signal)? => install::choose_unblocked(None, prepared::sender(options))?,
            _ => signal,
        };
        // The sampler thread changes the aim.
        let interval_ns = match tuning.clock {
            Clock::Wall { .. } => tuning.wall_period_ns(kernel::list().len() as u64),
            Clock::Ticks | Clock::Events { .. } | Clock::Traces => tuning.interval_ns,
        };
        let aim = tuning.clock.aim(interval_ns, 0);
        let fields = VmFields { offsets: vm.offsets, frozen: vm.frozen, compilers: vm.compilers };
        let (shared, rings) =
            memory::publish(options, room, aim, fields, self.host.memory, signal, uses_clock)?;
        install::install(signal)?;
        match options.mode {
            Mode::Jvmti => tracing::info!("asking for stack traces every {:?}", options.interval),
            Mode::Wall => {
                tracing::info!("profiling every {:?} of wall time with signal {signal}", options.interval);
            }
            _ => tracing::info!("profiling every {:?} of CPU time with signal {signal}", options.interval),
        }
        let now = if uses_clock { ucontext::monotonic } else { ucontext::cycles };
        Ok(Handler { shared, rings, aim, now })
    }
}

/// Step 3: the threads.
impl Start {
    fn registry(&self, handler: Handler, is_chosen: Option<fn(i32) -> bool>) -> Registry {
        let Self { options, tuning, .. } = self;
        let Handler { shared, rings, aim, .. } = handler;
        // CPU time has no shared rate, so all threads are sampled and the account closes.
        let filter = is_chosen.filter(|_| options.mode == Mode::Wall);
        Registry::new(shared, rings, options.threads.clone(), tuning.clock.of_threads(), aim)
            .with_share(tuning.wall_share_ns())
            .with_filter(filter)
            .traced(tuning.clock == Clock::Traces)
    }
}

/// Step 4: the sampler thread.
impl Start {
    /// Adds the collector to the destinations.
    fn destinations(
        &self,
        mut destinations: Destinations,
        collector: Option<Target>,
        registry: &Arc<Registry>,
    ) -> Result<(Destinations, Option<Reach>), Refusal> {
        let Some(target) = collector else { return Ok((destinations, None)) };
        let Options { token, window, end_silence, abandon, .. } = &self.options;
        let excluded = Arc::clone(registry);
        let on_thread = Box::new(move |tid| excluded.exclude(tid));
        let limits = Limits { window: *window, end_silence: *end_silence, abandon: *abandon };
        let delivery = Delivery::new(target, token.clone(), limits, on_thread).map_err(Refusal::NoThread)?;
        let reach = delivery.reach();
        destinations.add(Box::new(delivery));
        Ok((destinations, Some(reach)))
    }

    fn parts(&self, hotspot: &HotSpot, now: fn() -> u64) -> Parts {
        let memory = self.host.memory;
        let (path, bias) = self.host.library.clone();
        let symbols = Arc::new(HiddenSymbols::new(path, bias));
        let detector = Detector::choose(hotspot, memory, self.has_pause_events);
        tracing::info!("class unloading is detected by: {}", detector.name());
        let unloading = Arc::new(Unloading::new(
            detector,
            CodeFreeing::choose(hotspot, memory, Arc::clone(&symbols)),
            Redefinition::choose(hotspot, memory, Arc::clone(&symbols)),
            self.options.pause_budget,
            now,
            self.jni.permanent_loaders(),
        ));
        unloading.note(memory);
        let traces = (self.tuning.clock == Clock::Traces).then(|| Arc::new(Traces::default()));
        Parts { symbols, unloading, routines: Arc::new(Routines::new(now)), traces }
    }

    fn settings(
        &self,
        parts: &Parts,
        hotspot: &Arc<HotSpot>,
        evidence: Option<Evidence>,
        process_cpu_before_ns: u64,
    ) -> Settings<SafeFetch> {
        let Self { options, tuning, .. } = self;
        let (examined, memory) = (Arc::clone(hotspot), self.host.memory);
        Settings {
            routines: Arc::clone(&parts.routines),
            unloading: Arc::clone(&parts.unloading),
            examine: Box::new(move || self_test::examine(evidence.as_ref(), &examined, memory)),
            max_frames: options.depth,
            shown: options.shown,
            duration: options.duration,
            process_cpu_before_ns,
            queue_sizes: options.debug.queues,
            pace: options.debug.pace,
            tuning: *tuning,
            traces: parts.traces.clone(),
            observer: hooks::of_sampler(options.debug.hooks.sampler),
        }
    }

    /// Starts the thread.
    fn sampler(
        &self,
        parts: &Parts,
        hotspot: &Arc<HotSpot>,
        registry: &Arc<Registry>,
        settings: Settings<SafeFetch>,
        destinations: Destinations,
        ended: fn(End),
    ) -> Result<Sampler, Refusal> {
        let Host { memory, jvmti, ref image, .. } = self.host;
        let process = SampledProcess {
            registry: Arc::clone(registry),
            memory,
            hotspot: Arc::clone(hotspot),
            archive: Once::new(),
            thread_files: ThreadFiles::open(),
        };
        let reader = safe_fetch::of_sampler(memory, image.clone(), Arc::clone(&parts.symbols));
        let vm = ReadVm { hotspot: Arc::clone(hotspot), memory: reader };
        let facts = facts::of_this_process(&self.options, &jvmti, hotspot);
        let excluded = Arc::clone(registry);
        let on_thread = move |tid| {
            excluded.exclude(tid);
            scheduling::shorten_time_slices();
        };
        Sampler::start(process, settings, vm, facts, destinations, on_thread, ended)
            .map_err(Refusal::NoThread)
    }
}

/// Step 5: the events of the VM, and threads beside the sampler's.
impl Start {
    /// Lets the VM's events through, and gives all Java threads timers.
    fn open_events(
        &self,
        parts: &Parts,
        registry: &Arc<Registry>,
        sampler: &Sampler,
        offsets: ThreadOffsets,
    ) -> JavaThreads {
        let Host { memory, jvmti, .. } = self.host;
        let registry = Arc::clone(registry);
        if self.has_pause_events {
            let (unloading, waker) = (Arc::clone(&parts.unloading), sampler.waker());
            pauses::open(&jvmti, Gate { unloading, waker, registry: Arc::clone(&registry), memory });
        }
        routines::open(&jvmti, Arc::clone(&parts.routines));
        JavaThreads::new(registry, jvmti, memory, offsets, self.jni, self.thread)
    }

    /// Starts the thread that takes stack traces of the VM, in `mode=jvmti`.
    fn trace_thread(
        &self,
        parts: Parts,
        registry: &Arc<Registry>,
        now: fn() -> u64,
    ) -> Result<Option<TraceThread>, Refusal> {
        let Some(traces) = parts.traces else { return Ok(None) };
        let Host { vm, memory, jvmti, .. } = self.host;
        let Options { depth, shown, .. } = &self.options;
        let most_frames = shown.most.map_or(*depth, |most| most.java.min(*depth));
        let registry = Arc::clone(registry);
        let asker = Asker { jvmti, memory, registry, traces, most_frames, now };
        TraceThread::start(vm, asker).map(Some).map_err(Refusal::NoThread)
    }
}

/// Starts what developers' hooks demand in a profile that runs.
fn start_hooks(session: &Session, start: &Start, hotspot: Arc<HotSpot>) -> Result<(), Refusal> {
    let memory = start.host.memory;
    if hooks::ENABLED
        && let Some(rate) = start.options.debug.hooks.signals
    {
        let carriers = Carriers { shared: session.shared, memory, hotspot: Arc::clone(&hotspot) };
        let registry = Arc::clone(&session.registry);
        carriers.signal(rate, move |tid| registry.exclude(tid)).map_err(Refusal::NoThread)?;
    }
    if let Some(observer) = hooks::observer() {
        let env_offset = session.java_threads.env_offset().unwrap_or(0);
        observer.started(&ObservedVm { jvmti: session.jvmti, env_offset, hotspot, memory });
    }
    Ok(())
}

/// Returns what determines the period. A period that no tick disturbs is drawn for each profile, so that no program
/// is in phase with it: within a twentieth of the interval, and evenly.
fn tuning(options: &Options) -> Tuning {
    const LEAST_PPM: u64 = 950_000;
    const MOST_PPM: u64 = 1_050_000;
    let random_ppm = LEAST_PPM + RandomState::new().hash_one(0) % (MOST_PPM - LEAST_PPM);
    let factor_ppm = u32::try_from(random_ppm).unwrap_or(1_000_000);
    let clock = match (options.mode, options.clock) {
        (Mode::Wall, _) => Clock::Wall { factor_ppm },
        (Mode::Jvmti, _) => Clock::Traces,
        (_, ClockOption::Timer) => Clock::Ticks,
        (_, ClockOption::Perf) => Clock::Events { factor_ppm },
    };
    let Options { rate, budget_ppm, .. } = *options;
    Tuning { interval_ns: options.interval_ns(), rate, budget_ppm, clock }
}
