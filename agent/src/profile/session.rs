//! The order of start and stop.
//!
//! Problem: a handler may run on any thread from the moment a timer exists, and one that was preempted may go on
//! after the end.
//! Approach: [`PreparedSession`] holds what Agent_OnLoad can make (options, VM tables, destinations);
//! [`Session::start`] makes the rest at VMInit in the order layout, memory, publication, handler, sampler, timers;
//! [`Session::stop`] takes it down in the opposite order: timers, handlers in flight, sampler. Memory that handlers
//! touch is never freed.
//! Invariant: after every error the JVM runs on without a profile.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::PathBuf;
#[cfg(feature = "hooks")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use sampler_thread::clock::{self, process_cpu_nanos};
use sampler_thread::drain::traces::Traces;
use sampler_thread::native::variables::HiddenSymbols;
use sampler_thread::period::aim::{Aim, Clock};
use sampler_thread::period::interval::Tuning;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::send::delivery::{Delivery, Target};
use sampler_thread::send::sink::Destinations;
use sampler_thread::settings::Settings;
use sampler_thread::walk::routines::Routines;
use sampler_thread::walk::vm::Vm as ReadVm;
use sampler_thread::{End, Sampler, Stopped};
use stackwalk::{FrozenOffsets, HotSpot, LayoutError, LiveMemory};

use crate::clock::{perf_event, time_source};
use crate::guest::{log, scheduling};
use crate::handler::compilation::Compilers;
use crate::handler::install::{self, Sender};
use crate::handler::slots::Shared;
use crate::handler::{memory, ucontext};
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::vm::Vm;
use crate::jvmti::{Jvmti, Phase, ThreadRef, vm_memory};
use crate::jvmti::{routines, safe_fetch, thread_key};
use crate::profile::error::StartError;
use crate::profile::pauses::{self, Gate};
use crate::profile::{destinations, facts, thread_filter};
use crate::threads::kernel;
use crate::threads::trace_thread::{Asker, TraceThread};
use crate::threads::{JavaThreads, Registry, SampledProcess, ThreadFiles};
use crate::vm::self_test::{self, Subject};
use crate::vm::tables::{Preparation, VmTables};
use crate::vm::{tables, thread_layout};
use agent_options::{ClockOption, Mode, Options};

/// Longest wait for the last samples to be delivered when the JVM ends.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for handlers that run when profiling stops; one takes microseconds.
const HANDLER_PATIENCE: Duration = Duration::from_millis(100);
/// Last release whose method ids are addresses of pointers to methods; from 26 on they are numbers (JDK-8268406).
const LAST_WITH_METHOD_ADDRESSES: u32 = 25;

/// A profile before the VM is initialised.
pub struct PreparedSession {
    options: Options,
    vm: Vm,
    /// The JVMTI environment.
    pub jvmti: Jvmti,
    preparation: Preparation,
    /// File of the VM's library, and the address of its first byte.
    library: (PathBuf, u64),
    /// The addresses of the VM's library.
    image: Range<u64>,
    memory: &'static LiveMemory,
    destinations: Destinations,
    collector: Option<Target>,
    /// True once the VM reports garbage collection pauses to this session.
    pub has_pause_events: bool,
    /// The timers' signal.
    signal: i32,
    /// True if the program runs already.
    pub is_attached: bool,
}

impl PreparedSession {
    /// Begins to read the VM's tables, and opens the destinations; `is_attached` if the program runs already.
    ///
    /// # Errors
    /// [`StartError`]; an empty recording file may remain.
    pub fn new(options: Options, vm: Vm, is_attached: bool) -> Result<Self, StartError> {
        log::write_to(options.log_file.as_deref());
        let jvmti = vm.jvmti()?;
        if is_attached {
            check_phase(&jvmti)?;
        }
        let unsupported = |reason| StartError::unsupported(&jvmti, reason);
        let library = vm.library().ok_or_else(|| unsupported("its library was not found".to_owned()))?;
        let memory = vm_memory::of_library(&library);
        HotSpot::find_tables(|name| library.symbol(name), memory)
            .map_err(|error| unsupported(error.to_string()))?;
        let tables = if is_attached || options.strict {
            let tables = VmTables::read(vm, memory).map_err(|error| unsupported(error.to_string()))?;
            check_mode(options.mode, &tables.hotspot)?;
            Some(tables)
        } else {
            None
        };
        let choose = if is_attached { install::choose } else { install::choose_unblocked };
        let signal = choose(options.signal, sender(&options)).map_err(StartError::Signal)?;
        if options.clock == ClockOption::Perf {
            perf_event::check().map_err(StartError::PerfEvents)?;
        }
        clock::check().map_err(StartError::Clock)?;
        let collector = destinations::collector(&options)?;
        let destinations = destinations::open_file(&options)?;
        let (library, image) = (library.origin(), library.image());
        let preparation = match tables {
            Some(tables) if is_attached => Preparation::Read(Box::new(tables)),
            tables => Preparation::begin(&options, vm, memory, tables).map_err(StartError::Thread)?,
        };
        Ok(Self {
            options,
            vm,
            jvmti,
            preparation,
            library,
            image,
            memory,
            destinations,
            collector,
            has_pause_events: false,
            signal,
            is_attached,
        })
    }
}

/// Checks that a profile can begin at once: the functions that it needs work from the initialisation of the VM to
/// its end.
fn check_phase(jvmti: &Jvmti) -> Result<(), StartError> {
    match jvmti.phase()? {
        Phase::Live => Ok(()),
        Phase::Earlier => Err(StartError::Starting),
        Phase::Dead => Err(StartError::Ending),
    }
}

/// Checks that stack traces in the mode can be read in this VM.
fn check_mode(mode: Mode, hotspot: &HotSpot) -> Result<(), StartError> {
    if mode == Mode::Jvmti && hotspot.jdk_major() > LAST_WITH_METHOD_ADDRESSES {
        return Err(StartError::TracesOfLaterJdk(hotspot.jdk_major()));
    }
    Ok(())
}

/// Does for an agent that waits for a start what can only be done now: code that is compiled from now on gets
/// positions, and at the start of the VM the signal of the timers is unblocked. Makes no timer, no handler and no
/// thread.
///
/// # Errors
/// [`StartError`].
pub fn prepare_waiting(options: &Options, vm: Vm, is_attached: bool) -> Result<(), StartError> {
    let jvmti = vm.jvmti()?;
    let unsupported = |reason| StartError::unsupported(&jvmti, reason);
    let library = vm.library().ok_or_else(|| unsupported("its library was not found".to_owned()))?;
    let memory = vm_memory::of_library(&library);
    tables::layouts(Some(&library), memory).map_err(|error| unsupported(error.to_string()))?;
    if !is_attached {
        install::choose_unblocked(options.signal, sender(options)).map_err(StartError::Signal)?;
    }
    Ok(())
}

/// A running profile.
pub struct Session {
    /// The JVMTI environment.
    pub jvmti: Jvmti,
    registry: Arc<Registry>,
    java_threads: JavaThreads,
    shared: &'static Shared,
    sampler: Sampler,
    /// The thread of `mode=jvmti`.
    asking: Option<TraceThread>,
    #[cfg(feature = "hooks")]
    hooks: agent_options::debug::Hooks,
}

impl Session {
    /// Starts profiling in a VM that is initialised; `thread` is the calling Java thread, if it is known. If the
    /// sampler thread ends by itself, it calls `ended` last.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        prepared: PreparedSession,
        jni: Jni,
        thread: Option<ThreadRef>,
        ended: fn(End),
    ) -> Result<Self, StartError> {
        let PreparedSession {
            options,
            vm,
            jvmti,
            preparation,
            library,
            image,
            memory,
            mut destinations,
            collector,
            has_pause_events,
            signal,
            is_attached,
        } = prepared;
        let unsupported = |error: LayoutError| StartError::unsupported(&jvmti, error.to_string());
        let (room, tables) = preparation.finish().map_err(StartError::Thread)?;
        let VmTables { mut hotspot, mounted } = tables.map_err(unsupported)?;
        check_mode(options.mode, &hotspot)?;
        vm_memory::start(&mut hotspot, memory).map_err(unsupported)?;
        let mut offsets = hotspot.thread_offsets();
        offsets.mounted = mounted;
        let own_address = thread.and_then(|thread| jni.java_thread(thread));
        if let Some(address) = own_address {
            let sp = std::ptr::from_ref(&address) as u64;
            if let Some(field) = thread_layout::wrong_field(memory, address, sp, &offsets) {
                return Err(StartError::unsupported(
                    &jvmti,
                    format!("unknown layout of JavaThread: {field}"),
                ));
            }
        }
        #[cfg(feature = "hooks")]
        if options.debug.hooks.broken_layout {
            hotspot.break_layout();
        }
        let uses_clock = time_source::is_counter_unreliable() || options.debug.uses_clock();
        tracing::info!("time stamps: {}", if uses_clock { "monotonic clock" } else { "time stamp counter" });
        let begin = Instant::now();
        let evidence = Subject { hotspot: &hotspot, memory, jvmti, jni }.evidence();
        tracing::info!("evidence for the self-test took {} us", begin.elapsed().as_micros());
        // Another agent may have taken it since.
        let signal = match options.signal {
            None if !install::is_free(signal).map_err(StartError::Signal)? => {
                install::choose_unblocked(None, sender(&options)).map_err(StartError::Signal)?
            }
            _ => signal,
        };
        let frozen = frozen_offsets(jni, &hotspot, memory);
        let compilers = own_address
            .zip(offsets.compiler)
            .and_then(|(address, offsets)| Some(Compilers { key: thread_key::find(address)?, offsets }));
        let tuning = Tuning {
            interval_ns: options.interval_ns(),
            rate: options.rate,
            budget_ppm: options.budget_ppm,
            clock: clock(&options),
        };
        let aim = first_aim(&tuning);
        let (shared, rings) =
            memory::publish(&options, room, aim, (offsets, frozen, compilers), memory, signal, uses_clock)?;
        install::install(signal).map_err(StartError::Signal)?;
        // CPU time has no shared rate, so all threads are sampled and the account closes.
        let filter = (options.mode == Mode::Wall).then(thread_filter::of_present).flatten();
        let registry =
            Registry::new(shared, rings, (signal, options.threads.clone()), tuning.clock.of_threads(), aim)
                .with_share(tuning.wall_share_ns())
                .with_filter(filter)
                .traced(tuning.clock == Clock::Traces);
        let registry = Arc::new(registry);
        let process_cpu_before_ns = if is_attached {
            registry.exclude_time_until_now();
            process_cpu_nanos()
        } else {
            0
        };
        let facts = facts::of_this_process(&options, &jvmti, &hotspot);
        if let Some(target) = collector {
            let excluded = Arc::clone(&registry);
            let on_thread = Box::new(move |tid| excluded.exclude(tid));
            let delivery = Delivery::new(
                target,
                options.token.clone(),
                (options.window, options.end_silence),
                on_thread,
            )
            .map_err(StartError::Thread)?
            .abandoning_after(options.abandon);
            destinations.add(Box::new(delivery));
        }
        let detector = Detector::choose(&hotspot, memory, has_pause_events);
        tracing::info!("class unloading is detected by: {}", detector.name());
        let symbols = Arc::new(HiddenSymbols::new(library));
        let freeing = CodeFreeing::choose(&hotspot, memory, Arc::clone(&symbols));
        let now = if uses_clock { ucontext::monotonic } else { ucontext::cycles };
        let unloading = Arc::new(Unloading::new(
            detector,
            freeing,
            Redefinition::choose(&hotspot, memory, Arc::clone(&symbols)),
            options.pause_budget,
            now,
            jni.permanent_loaders(),
        ));
        unloading.note(memory);
        let hotspot = Arc::new(hotspot);
        let process = SampledProcess {
            registry: Arc::clone(&registry),
            memory,
            hotspot: Arc::clone(&hotspot),
            archive: Once::new(),
            thread_files: ThreadFiles::open(),
        };
        let examined = Arc::clone(&hotspot);
        let generated = Arc::new(Routines::new(now));
        let traces = (tuning.clock == Clock::Traces).then(|| Arc::new(Traces::default()));
        let settings = Settings {
            routines: Arc::clone(&generated),
            unloading: Arc::clone(&unloading),
            examine: Box::new(move || self_test::examine(evidence.as_ref(), &examined, memory)),
            max_frames: options.depth,
            shown: options.shown,
            duration: options.duration,
            process_cpu_before_ns,
            queue_sizes: options.debug.queues,
            pace: options.debug.pace,
            tuning,
            traces: traces.clone(),
            #[cfg(feature = "hooks")]
            observer: Some(crate::hooks::of_sampler(options.debug.hooks.sampler)),
            #[cfg(not(feature = "hooks"))]
            observer: None,
        };
        let sampler = {
            let excluded = Arc::clone(&registry);
            let on_thread = move |tid| {
                excluded.exclude(tid);
                scheduling::shorten_time_slices();
            };
            let memory = safe_fetch::of_sampler(memory, image, symbols);
            let vm = ReadVm { hotspot: Arc::clone(&hotspot), memory };
            Sampler::start(process, settings, vm, facts, destinations, on_thread, ended)
                .map_err(StartError::Thread)?
        };
        if has_pause_events {
            let (registry, waker) = (Arc::clone(&registry), sampler.waker());
            let gate = Gate { unloading, waker, registry, memory };
            pauses::open(&jvmti, gate);
        }
        routines::open(&jvmti, generated);
        let java_threads = JavaThreads::new(Arc::clone(&registry), jvmti, memory, offsets, jni, thread);
        #[cfg(feature = "hooks")]
        if let Some(rate) = options.debug.hooks.signals {
            let carriers = crate::hooks::signals::Carriers { shared, memory, hotspot: Arc::clone(&hotspot) };
            carriers.signal(rate, Arc::clone(&registry)).map_err(StartError::Thread)?;
        }
        #[cfg(feature = "hooks")]
        if let Some(observer) = crate::hooks::observer() {
            let env_offset = java_threads.env_offset().unwrap_or(0);
            (observer.on_start)(&crate::hooks::ObservedVm { jvmti, env_offset, hotspot, memory });
        }
        let asking = traces.map(|traces| {
            let most_frames = options.shown.most.map_or(options.depth, |most| most.java.min(options.depth));
            let registry = Arc::clone(&registry);
            TraceThread::start(vm, Asker { jvmti, memory, registry, traces, most_frames, now })
        });
        let asking = asking.transpose().map_err(StartError::Thread)?;
        match options.mode {
            Mode::Jvmti => tracing::info!("asking for stack traces every {:?}", options.interval),
            Mode::Wall => {
                tracing::info!("profiling every {:?} of wall time with signal {signal}", options.interval)
            }
            _ => tracing::info!("profiling every {:?} of CPU time with signal {signal}", options.interval),
        }
        Ok(Self {
            registry,
            java_threads,
            shared,
            sampler,
            jvmti,
            asking,
            #[cfg(feature = "hooks")]
            hooks: options.debug.hooks,
        })
    }

    /// Judges a thread again that the program has chosen, or not any more.
    pub fn judge_again(&self, tid: i32) {
        self.registry.judge_again(tid);
    }

    /// The Java threads, for the VM's events.
    pub fn java_threads(&self) -> &JavaThreads {
        &self.java_threads
    }

    /// Unregisters the calling Java thread, and empties its queue if no other thread drains one now.
    pub fn thread_ended(&self, jni: Jni, thread: ThreadRef) {
        if let Some(slot) = self.java_threads.ended(jni, thread) {
            self.sampler.drain_ended(slot);
        }
    }

    /// Ends sampling: later expirations count as lost.
    pub fn silence(&self) {
        self.shared.silence();
    }

    /// Has every sample taken so far sent; waits at most for `patience`, and returns whether that is done.
    pub fn flush(&self, patience: Duration) -> bool {
        self.sampler.flush(patience)
    }

    /// Returns whether the sampler thread has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.sampler.has_ended()
    }

    /// Panics if a hook demands it, once.
    ///
    /// # Panics
    /// That is its purpose.
    #[cfg(feature = "hooks")]
    pub fn panic_if_told(&self) {
        static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
        let panics = self.hooks.panics_at_start && !HAS_PANICKED.swap(true, Ordering::Relaxed);
        assert!(!panics, "the hook panic:callback demands a panic");
    }

    /// Ends a session whose handlers are silent: stops timers first, then waits for handlers in flight, then for the
    /// sampler, which drains and sends everything.
    pub fn stop(self, reason: &'static str) -> Stopped {
        #[cfg(feature = "hooks")]
        if let Some(delay) = self.hooks.stop_delay {
            // The purpose of this hook is to let threads end in between.
            #[expect(clippy::disallowed_methods)]
            std::thread::sleep(delay);
        }
        pauses::close();
        routines::close();
        self.asking.inspect(TraceThread::stop);
        self.registry.stop();
        // The handlers' flags are plain stores, visible within nanoseconds. A handler that has only just begun may be
        // overlooked: its request then stays in its queue, and its time counts as unfinished.
        let deadline = Instant::now() + HANDLER_PATIENCE;
        let mut is_running = self.registry.is_any_handler_running();
        while is_running && Instant::now() < deadline {
            std::thread::yield_now();
            is_running = self.registry.is_any_handler_running();
        }
        self.shared.is_at_rest.store(!is_running, Ordering::Release);
        #[cfg(feature = "hooks")]
        if let Some(observer) = crate::hooks::observer() {
            (observer.on_stop)(&self.jvmti);
        }
        let stopped = self.sampler.stop(reason, STOP_PATIENCE);
        if !stopped.has_sent() {
            tracing::warn!("the last samples were not delivered within {STOP_PATIENCE:?}");
        }
        stopped
    }
}

/// Returns what sends the signals.
fn sender(options: &Options) -> Sender {
    match options.clock {
        ClockOption::Timer => Sender::Timers,
        ClockOption::Perf => Sender::Events,
    }
}

/// Returns the source of the signals. A period that no tick disturbs is drawn for each profile, so that no program
/// is in phase with it: within a twentieth of the interval, and evenly.
fn clock(options: &Options) -> Clock {
    const LEAST_PPM: u64 = 950_000;
    const MOST_PPM: u64 = 1_050_000;
    let random_ppm = LEAST_PPM + RandomState::new().hash_one(0) % (MOST_PPM - LEAST_PPM);
    let factor_ppm = u32::try_from(random_ppm).unwrap_or(1_000_000);
    match (options.mode, options.clock) {
        (Mode::Wall, _) => Clock::Wall { factor_ppm },
        (Mode::Jvmti, _) => Clock::Traces,
        (_, ClockOption::Timer) => Clock::Ticks,
        (_, ClockOption::Perf) => Clock::Events { factor_ppm },
    }
}

/// Returns what new timers aim at until the sampler thread sets it.
fn first_aim(tuning: &Tuning) -> Aim {
    let interval_ns = match tuning.clock {
        Clock::Wall { .. } => tuning.wall_period_ns(kernel::list().len() as u64),
        Clock::Ticks | Clock::Events { .. } | Clock::Traces => tuning.interval_ns,
    };
    tuning.clock.aim(interval_ns, 0)
}

/// Returns the offsets for virtual threads' frames in the heap, which live for ever; `None` where these frames
/// cannot be followed, and stacks end at the return barrier.
fn frozen_offsets(jni: Jni, hotspot: &HotSpot, memory: &LiveMemory) -> Option<&'static FrozenOffsets> {
    static OFFSETS: OnceLock<Option<FrozenOffsets>> = OnceLock::new();
    let find = || hotspot.frozen_offsets(memory, jni.chunk_class(hotspot, memory)?);
    OFFSETS.get_or_init(find).as_ref()
}
