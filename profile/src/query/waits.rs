//! States of threads in a profile of wall time, and the methods of the program in which they wait.
//!
//! Approach: the agent sends with each stack whether a system call of the thread waited. A thread that waits on behalf
//! of a monitor is blocked. The newest Java method outside of the JDK names the wait. For how long threads were ready
//! and had no processor is known from the kernel, for whole threads.

use proto::ThreadState;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::dictionary::Dictionary;
use crate::query::blocked::is_blocked;
use crate::query::process::ProcessProfile;
use crate::source::Sum;
use crate::text::quantity::{percent_of, total};

const PACKAGES: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];

/// Name of waits of threads that run no method of the program.
pub const NOT_OF_PROGRAM: &str = "[no method of the program]";

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// To enter a monitor.
    Blocked,
    /// For something else: a condition, a time, input.
    Waiting,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
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
    /// Time for which threads were ready to run and had no processor; 0 if only a part of the samples is selected.
    pub runnable_ns: u64,
    pub blocked_ns: u64,
    pub waiting_ns: u64,
    /// True if there are samples, with a known state or without.
    #[serde(skip)]
    pub has_samples: bool,
    /// The waits, the longest first, and those outside of the program last.
    pub waits: Vec<Wait>,
}

impl Waits {
    /// Adds up the selected samples of `profile` whose stacks have a state.
    pub fn of(profile: &ProcessProfile) -> Self {
        let dictionary = profile.dictionary();
        let mut waits = Waits { has_samples: !profile.samples().is_empty(), ..Waits::default() };
        let mut running: FxHashMap<u32, u64> = FxHashMap::default();
        let mut waiting: FxHashMap<u32, u64> = FxHashMap::default();
        for (thread, stack, Sum { cpu_ns, .. }) in profile.cells() {
            let sum = match ThreadState::split(profile.root_of(stack)).1 {
                Some(ThreadState::Running) => running.entry(profile.account_owner(thread)).or_default(),
                Some(ThreadState::Waiting) => waiting.entry(stack).or_default(),
                None => continue,
            };
            *sum = sum.saturating_add(cpu_ns);
        }
        for (thread, ns) in running {
            let delay_ns = profile.session().account(thread).and_then(|account| account.run_delay_ns);
            let runnable_ns = delay_ns.filter(|_| !profile.is_part()).unwrap_or(0).min(ns);
            waits.runnable_ns = waits.runnable_ns.saturating_add(runnable_ns);
            waits.running_ns = waits.running_ns.saturating_add(ns - runnable_ns);
        }
        let mut by_method: FxHashMap<(State, String), u64> = FxHashMap::default();
        for (stack, ns) in waiting {
            let frames = dictionary.path(stack);
            let state = if is_blocked(dictionary, &frames) { State::Blocked } else { State::Waiting };
            let sum = if state == State::Blocked { &mut waits.blocked_ns } else { &mut waits.waiting_ns };
            *sum = sum.saturating_add(ns);
            let sum = by_method.entry((state, method(dictionary, &frames))).or_default();
            *sum = sum.saturating_add(ns);
        }
        let rows = by_method.into_iter().map(|((state, method), ns)| Wait { state, method, ns });
        waits.waits = rows.collect();
        waits.waits.sort_by(|a, b| {
            let key = |wait: &Wait| (wait.method == NOT_OF_PROGRAM, std::cmp::Reverse(wait.ns));
            key(a).cmp(&key(b)).then_with(|| a.method.cmp(&b.method))
        });
        waits
    }

    pub fn total_ns(&self) -> u64 {
        total([self.running_ns, self.runnable_ns, self.blocked_ns, self.waiting_ns])
    }

    /// Returns the shares of the states in one line; empty without samples.
    pub fn sentence(&self) -> String {
        let whole = self.total_ns();
        if whole == 0 && self.has_samples {
            return "states of threads are unknown: an earlier version recorded this".to_owned();
        }
        let parts = [
            ("running", self.running_ns),
            ("without a processor", self.runnable_ns),
            ("blocked", self.blocked_ns),
            ("waiting", self.waiting_ns),
        ];
        let parts = parts.iter().filter(|&&(_, ns)| ns > 0);
        parts.map(|&(name, ns)| format!("{name} {}", percent_of(ns, whole))).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the newest method that is not of the JDK.
fn method(dictionary: &Dictionary, frames: &[u32]) -> String {
    let methods = frames.iter().filter(|&&frame| dictionary.frame(frame).method != 0);
    let mut names = methods.map(|&frame| dictionary.frame_text(frame));
    let own = names.find(|name| !PACKAGES.iter().any(|package| name.starts_with(package)));
    own.map_or_else(|| NOT_OF_PROGRAM.to_owned(), |name| name.into_owned())
}
