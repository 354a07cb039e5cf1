//! The thread of `mode=jvmti`, which gets stack traces from the VM.
//!
//! Problem: profilers that sample by GetStackTrace show other methods, and users compare.
//! Approach: at random times, a daemon thread of the VM reads the CPU clocks of all Java threads and requests the stack
//! of each that has run. The VM answers at a safepoint, so the stack is not that of the code that used the time, which
//! every output states.
//! Invariants: the thread is not profiled, and its CPU time is the profiler's. It holds no lock of the agent while it
//! waits for the VM.
//! Sources: JVMTI 1.2, GetAllThreads and GetStackTrace; `runtime/jniHandles.hpp` and `oops/method.hpp`
//! (`Method::resolve_jmethod_id`: a method id is the address of a `Method*`), JDK 11 to 25.
//! Decision: `design/account.md`.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use parking_lot::{Condvar, Mutex};
use sampler_thread::clock;
use sampler_thread::drain::traces::{Trace, Traces};
use stackwalk::{LiveMemory, Memory};

use crate::jvmti::jni_calls::Jni;
use crate::jvmti::vm::{Attached, Vm};
use crate::jvmti::{Jvmti, ThreadRef, guard};
use crate::threads::Registry;
use crate::threads::traced::Due;

/// Name in Java, and of the kernel's thread.
const NAME: &CStr = c"tickwalk-jvmti";
/// Time between two attempts to become a thread of a VM that is still starting.
const ATTACH_PERIOD: Duration = Duration::from_millis(5);
/// Longest wait for the end of the thread, which may itself wait for a thread of the program in a long loop.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
/// Frames of the first request.
const USUAL_FRAMES: usize = 1024;
/// Local references beside those to threads.
const REFERENCES: usize = 64;

/// The parts of the agent that traces need.
pub struct Asker {
    pub jvmti: Jvmti,
    pub memory: &'static LiveMemory,
    pub registry: Arc<Registry>,
    pub traces: Arc<Traces>,
    /// Most frames of a trace.
    pub most_frames: u32,
    /// Time stamps of samples.
    pub now: fn() -> u64,
}

#[derive(Debug)]
pub struct TraceThread {
    state: Arc<State>,
}

/// Shared by the thread and its owner.
#[derive(Debug, Default)]
struct State {
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Running,
    Stopping,
    Ended,
}

impl State {
    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
        self.changed.notify_all();
    }

    /// Waits for so long; returns whether the thread goes on.
    fn goes_on_after(&self, pause: Duration) -> bool {
        let mut phase = self.phase.lock();
        self.changed.wait_while_for(&mut phase, |phase| *phase == Phase::Running, pause);
        *phase == Phase::Running
    }

    fn is_stopping(&self) -> bool {
        *self.phase.lock() != Phase::Running
    }
}

/// Reports the end of the thread, after a panic as well.
struct Ending(Arc<State>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set(Phase::Ended);
    }
}

impl TraceThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// As [`std::thread::Builder::spawn`].
    pub fn start(vm: Vm, asker: Asker) -> io::Result<Self> {
        let state = Arc::new(State::default());
        let ending = Ending(Arc::clone(&state));
        // The new thread inherits the mask, so it handles no signal of the program.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
        let body = move || {
            let vm = vm;
            asker.registry.exclude(nix::unistd::gettid().as_raw());
            guard::entry_point((), || asker.run(vm, &ending.0));
        };
        let name = NAME.to_string_lossy().into_owned();
        let spawned = std::thread::Builder::new().name(name).spawn(body);
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        spawned?;
        Ok(Self { state })
    }

    /// Ends the thread, and waits a short time for that; a thread that ends later claims nothing.
    pub fn stop(&self) {
        let mut phase = self.state.phase.lock();
        if *phase == Phase::Running {
            *phase = Phase::Stopping;
        }
        self.state.changed.notify_all();
        self.state.changed.wait_while_for(&mut phase, |phase| *phase != Phase::Ended, STOP_PATIENCE);
    }
}

impl Asker {
    fn run(&self, vm: Vm, state: &State) {
        let Some(_attached) = attached(vm, state) else { return };
        let Ok(jni) = vm.jni() else { return };
        while state.goes_on_after(self.registry.until_next_look()) {
            if !self.traces.is_full() {
                self.look(jni, state);
            }
            self.traces.set_cpu_ns(clock::own_cpu_nanos());
        }
    }

    /// Requests the stacks of the threads that have run.
    fn look(&self, jni: Jni, state: &State) {
        let due = self.registry.due();
        if due.is_empty() {
            return;
        }
        jni.in_frame(self.registry.threads() + REFERENCES, || {
            let threads = self.jvmti.all_threads();
            let by_address = |thread: &ThreadRef| Some((jni.java_thread(*thread)?, *thread));
            let threads: HashMap<u64, ThreadRef> = threads.iter().filter_map(by_address).collect();
            for due in due {
                if state.is_stopping() {
                    return;
                }
                if let Some(&thread) = threads.get(&due.address) {
                    self.ask(jni, &due, thread);
                }
            }
        });
    }

    /// Leaves the stack trace of one thread, unless it has ended.
    fn ask(&self, jni: Jni, due: &Due, thread: ThreadRef) {
        // Another thread may have the address meanwhile.
        if jni.java_thread(thread) != Some(due.address) {
            return;
        }
        let most = self.most_frames as usize;
        let ticks = (self.now)();
        // One more than `most`, to see whether there are more.
        let mut answer = self.jvmti.frames_of(thread, USUAL_FRAMES.min(most + 1));
        if answer.as_ref().is_ok_and(|ids| ids.len() == USUAL_FRAMES) {
            answer = self.jvmti.frames_of(thread, most + 1);
        }
        let Ok(ids) = answer else { return };
        let frames = ids.iter().take(most).map(|&(id, location)| {
            // 0 for an unloaded method.
            let method = self.memory.read_u64(id).unwrap_or(0);
            (method, i32::try_from(location).unwrap_or(-1))
        });
        let (frames, is_cut) = (frames.collect(), ids.len() > most);
        let Due { slot, id, .. } = *due;
        self.registry.claim(due, |cpu_ns| {
            self.traces.push(Trace { slot, thread: id, ticks, cpu_ns, frames, is_cut });
        });
    }
}

/// Attaches the calling thread to the VM as soon as the VM accepts that; `None` if the profile ends first.
fn attached(vm: Vm, state: &State) -> Option<Attached> {
    let begin = Instant::now();
    loop {
        match vm.attach_as(NAME) {
            Ok(attached) => return Some(attached),
            Err(error) if begin.elapsed() > Duration::from_secs(10) => {
                tracing::warn!("mode=jvmti gets no stack traces: {error}; all CPU time is unfinished");
                return None;
            }
            Err(_) => {}
        }
        if !state.goes_on_after(ATTACH_PERIOD) {
            return None;
        }
    }
}
