//! Developers' hooks, with the cargo feature `hooks` only: extra walks, an observer of walks, delays, changes of the period.
//!
//! Invariant: without the feature this module does not exist; with it, default [`Hooks`] change nothing.

pub mod probe;

use std::time::{Duration, Instant};

use stackwalk::{Frame, Memory, Stop};

use crate::hooks::probe::{Probe, Probing};
use crate::period::aim::Aim;
use crate::walk::snapshot::Snapshot;
use crate::walk::stacks::{StackWalker, Walk};
use crate::walk::vm::Vm;

/// Receives the walk of the request with this slot and time stamp: what was walked, its frames, why the walk ended.
pub type OnWalk = fn(u32, u64, &Snapshot<'_>, &[Frame], Stop);

/// Factors by which [`Hooks::retune`] multiplies the shortest interval and the timers' period, one after the other.
const FACTORS: [u64; 5] = [1, 3, 2, 5, 4];

/// Switches for developers (`debug=` of the agent's options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Extra walks of each sampled stack.
    pub probe: Probe,
    /// Extra sleep of the sampler, once a second.
    pub stall: Option<Duration>,
    /// Walk each stack in full as well, and compare.
    pub compare: bool,
    /// Time between two changes of the interval and of the timers' period.
    pub retune: Option<Duration>,
    /// The sampler panics with the first statistics.
    pub panics: bool,
}

/// The hooks of a running sampler.
pub(crate) struct ActiveHooks {
    hooks: Hooks,
    /// Called with each walk of a Java thread.
    on_walk: Option<OnWalk>,
    probing: Option<Probing>,
    next_retune: Option<Instant>,
    retunes: usize,
}

impl ActiveHooks {
    pub(crate) fn new(hooks: Hooks, on_walk: Option<OnWalk>) -> Self {
        let next_retune = hooks.retune.map(|period| Instant::now() + period);
        Self { hooks, on_walk, probing: Probing::new(hooks.probe), next_retune, retunes: 0 }
    }

    /// Switches on what a walker does for hooks.
    pub(crate) fn set_up(&self, walker: &mut StackWalker) {
        walker.comparison = self.hooks.compare.then(Default::default);
    }

    /// Sleeps as long as [`Hooks::stall`] says; to be called once a second.
    ///
    /// # Panics
    /// If [`Hooks::panics`] is set.
    pub(crate) fn stall(&self) {
        assert!(!self.hooks.panics, "the hook panic:sampler demands a panic");
        if let Some(stall) = self.hooks.stall {
            // The purpose of this hook is to make the sampler late.
            #[expect(clippy::disallowed_methods)]
            std::thread::sleep(stall);
        }
    }

    /// Returns the next aim if it is to change at `now`: interval and period of the timers are multiples of `shortest`.
    pub(crate) fn retune(&mut self, now: Instant, shortest: Aim) -> Option<Aim> {
        let due = self.next_retune.filter(|due| now >= *due)?;
        self.next_retune = self.hooks.retune.map(|period| due.max(now) + period);
        self.retunes += 1;
        FACTORS.get(self.retunes % FACTORS.len()).map(|factor| Aim {
            interval_ns: shortest.interval_ns.saturating_mul(*factor),
            period_ns: shortest.period_ns.saturating_mul(*factor),
            tick_ns: shortest.tick_ns.saturating_mul(if shortest.is_exact() { *factor } else { 1 }),
        })
    }

    /// Shows a walk to the hooks; the sample is `age_ns` old.
    pub(crate) fn walked<M: Memory>(
        &mut self,
        vm: &Vm<M>,
        walker: &mut StackWalker,
        walk: &Walk,
        snapshot: &Snapshot<'_>,
        (slot, ticks, age_ns): (u32, u64, u64),
    ) {
        if let Some(on_walk) = self.on_walk.filter(|_| snapshot.head.capture.thread != 0) {
            on_walk(slot, ticks, snapshot, walker.frames(walk), walk.stop);
        }
        if let Some(probing) = &mut self.probing {
            probing.look(vm, &mut walker.libraries.reading(&vm.memory), snapshot, age_ns);
        }
    }

    /// Logs what was counted.
    pub(crate) fn report(&self, walker: &StackWalker) {
        if let Some(comparison) = &walker.comparison {
            comparison.report();
        }
        if let Some(probing) = &self.probing {
            probing.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_changes_in_turn() {
        let every = Duration::from_millis(50);
        let mut hooks = ActiveHooks::new(Hooks { retune: Some(every), ..Hooks::default() }, None);
        let start = Instant::now();
        let shortest = Aim { interval_ns: 10, tick_ns: 8, period_ns: 1 };
        assert_eq!(hooks.retune(start, shortest), None, "too early");
        let aims: Vec<Aim> = (1..=6).filter_map(|n| hooks.retune(start + every * 2 * n, shortest)).collect();
        assert_eq!(aims.iter().map(|aim| aim.interval_ns).collect::<Vec<_>>(), [30, 20, 50, 40, 10, 30]);
        assert_eq!(aims.iter().map(|aim| aim.period_ns).collect::<Vec<_>>(), [3, 2, 5, 4, 1, 3]);
        assert_eq!(ActiveHooks::new(Hooks::default(), None).retune(start + every, shortest), None);
    }
}
