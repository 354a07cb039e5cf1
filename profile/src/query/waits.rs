//! States of threads in a profile of wall time, and the methods of the program in which they wait.
//!
//! Approach: the newest frames of a stack show the state: a thread in a wait of the C library waits, on behalf
//! of a monitor it is blocked, and any other thread runs or has no processor. The newest Java method outside of the JDK
//! names the wait. Reads of files and pipes count as running, because their frames are the same for both.

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::dictionary::Dictionary;
use crate::query::process::ProcessProfile;
use crate::source::Sum;
use crate::text::quantity::{percent_of, total};

/// Functions of the C library in which threads wait, without leading underscores and `GI_` or `libc_`.
const WAITS: [&str; 21] = [
    "futex_",
    "do_futex_wait",
    "lll_lock_wait",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "sem_wait",
    "sem_timedwait",
    "clock_nanosleep",
    "nanosleep",
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "select",
    "accept",
    "connect",
    "recv",
    "sigtimedwait",
    "sigwait",
    "wait4",
];

/// Java methods that wait, for stacks without native frames.
const JAVA_WAITS: [&str; 6] = [
    "jdk.internal.misc.Unsafe.park",
    "java.lang.Object.wait",
    "java.lang.Object.wait0",
    "java.lang.Thread.sleep",
    "java.lang.Thread.sleep0",
    "java.lang.Thread.sleepNanos0",
];

/// Functions of libjvm that enter a monitor.
const MONITORS: [&str; 3] =
    ["ObjectMonitor::enter", "complete_monitor_locking", "InterpreterRuntime::monitorenter"];

const PACKAGES: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];

/// Name of waits of threads that run no method of the program.
pub const NOT_OF_PROGRAM: &str = "[no method of the program]";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It runs, or is ready to run and has no processor.
    Running,
    /// It waits to enter a monitor.
    Blocked,
    /// It waits for something else: a condition, a time, input.
    Waiting,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Waiting => "waiting",
        }
    }
}

/// Time that threads spent in one method of the program and its callees in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub state: State,
    /// The method, or [`NOT_OF_PROGRAM`].
    pub method: String,
    /// Wall time.
    pub ns: u64,
}

/// Wall time by state, and waits by method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    pub running_ns: u64,
    pub blocked_ns: u64,
    pub waiting_ns: u64,
    /// The waits, the longest first, and those outside of the program last.
    pub waits: Vec<Wait>,
}

impl Waits {
    /// Adds up the selected samples of `profile`.
    pub fn of(profile: &ProcessProfile) -> Self {
        let dictionary = profile.dictionary();
        let mut by_stack: FxHashMap<u32, Sum> = FxHashMap::default();
        profile
            .samples()
            .iter()
            .for_each(|sample| by_stack.entry(sample.stack).or_default().add(sample.sum()));
        let mut waits = Waits::default();
        let mut by_method: FxHashMap<(State, String), u64> = FxHashMap::default();
        for (stack, Sum { cpu_ns, .. }) in by_stack {
            let frames = dictionary.path(stack);
            let state = state(dictionary, &frames);
            let sum = match state {
                State::Running => &mut waits.running_ns,
                State::Blocked => &mut waits.blocked_ns,
                State::Waiting => &mut waits.waiting_ns,
            };
            *sum = sum.saturating_add(cpu_ns);
            if state != State::Running {
                let sum = by_method.entry((state, method(dictionary, &frames))).or_default();
                *sum = sum.saturating_add(cpu_ns);
            }
        }
        let waiting = by_method.into_iter().map(|((state, method), ns)| Wait { state, method, ns });
        waits.waits = waiting.collect();
        waits.waits.sort_by(|a, b| {
            let key = |wait: &Wait| (wait.method == NOT_OF_PROGRAM, std::cmp::Reverse(wait.ns));
            key(a).cmp(&key(b)).then_with(|| a.method.cmp(&b.method))
        });
        waits
    }

    pub fn total_ns(&self) -> u64 {
        total([self.running_ns, self.blocked_ns, self.waiting_ns])
    }

    /// Returns the shares of the states in one line; empty without samples.
    pub fn sentence(&self) -> String {
        let whole = self.total_ns();
        let parts =
            [("running", self.running_ns), ("blocked", self.blocked_ns), ("waiting", self.waiting_ns)];
        let parts = parts.iter().filter(|&&(_, ns)| ns > 0);
        parts.map(|&(name, ns)| format!("{name} {}", percent_of(ns, whole))).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the state of a thread with these frames, the newest first.
fn state(dictionary: &Dictionary, frames: &[u32]) -> State {
    let Some(&newest) = frames.first() else { return State::Running };
    let name = dictionary.frame_text(newest);
    if dictionary.frame(newest).method != 0 {
        return if JAVA_WAITS.contains(&&*name) { State::Waiting } else { State::Running };
    }
    let is_native = dictionary.frame(newest).kind == FrameKind::Native as u8;
    let function = name.trim_start_matches('_');
    let function = ["GI_", "libc_"].iter().find_map(|start| function.strip_prefix(start)).unwrap_or(function);
    let function = function.trim_start_matches('_');
    if !is_native || !WAITS.iter().any(|wait| function.starts_with(wait)) {
        return State::Running;
    }
    let of_jvm = frames.iter().take_while(|&&frame| dictionary.frame(frame).method == 0);
    let mut names = of_jvm.map(|&frame| dictionary.frame_text(frame));
    match names.any(|name| MONITORS.iter().any(|monitor| name.contains(monitor))) {
        true => State::Blocked,
        false => State::Waiting,
    }
}

/// Returns the newest method that is not of the JDK.
fn method(dictionary: &Dictionary, frames: &[u32]) -> String {
    let methods = frames.iter().filter(|&&frame| dictionary.frame(frame).method != 0);
    let mut names = methods.map(|&frame| dictionary.frame_text(frame));
    let own = names.find(|name| !PACKAGES.iter().any(|package| name.starts_with(package)));
    own.map_or_else(|| NOT_OF_PROGRAM.to_owned(), |name| name.into_owned())
}
