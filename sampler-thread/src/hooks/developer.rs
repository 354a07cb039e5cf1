//! What developers can switch on by `debug=` of the agent's options.
//!
//! Invariant: default [`Hooks`] change nothing.

use std::time::{Duration, Instant};

use stackwalk::{Frame, Memory, Stop};

use super::probe::{Probe, Probing};
use super::{ObservedWalk, Observer};
use crate::period::aim::Aim;
use crate::walk::snapshot::Snapshot;

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

/// The observer of a running sampler.
pub struct DeveloperHooks {
    hooks: Hooks,
    /// Called with each walk of a Java thread.
    on_walk: Option<OnWalk>,
    probing: Option<Probing>,
    next_retune: Option<Instant>,
    retunes: usize,
}

impl DeveloperHooks {
    /// Does what `hooks` say, and calls `on_walk` with each walk of a Java thread.
    pub fn new(hooks: Hooks, on_walk: Option<OnWalk>) -> Self {
        let next_retune = hooks.retune.map(|period| Instant::now() + period);
        Self { hooks, on_walk, probing: Probing::new(hooks.probe), next_retune, retunes: 0 }
    }

    fn next_aim(&mut self, now: Instant, shortest: Aim) -> Option<Aim> {
        let due = self.next_retune.filter(|due| now >= *due)?;
        self.next_retune = self.hooks.retune.map(|period| due.max(now) + period);
        self.retunes += 1;
        FACTORS.get(self.retunes % FACTORS.len()).map(|factor| Aim {
            interval_ns: shortest.interval_ns.saturating_mul(*factor),
            period_ns: shortest.period_ns.saturating_mul(*factor),
            tick_ns: shortest.tick_ns.saturating_mul(if shortest.is_exact() { *factor } else { 1 }),
        })
    }
}

impl<M: Memory> Observer<M> for DeveloperHooks {
    fn compares_walks(&self) -> bool {
        self.hooks.compare
    }

    fn on_second(&mut self) {
        assert!(!self.hooks.panics, "the hook panic:sampler demands a panic");
        if let Some(stall) = self.hooks.stall {
            #[expect(clippy::disallowed_methods, reason = "this hook makes the sampler late")]
            std::thread::sleep(stall);
        }
    }

    fn aim(&mut self, now: Instant, shortest: Aim) -> Option<Aim> {
        self.next_aim(now, shortest)
    }

    fn on_walk(&mut self, walk: ObservedWalk<'_, M>) {
        let ObservedWalk { slot, ticks, snapshot, frames, stop, .. } = walk;
        if let Some(on_walk) = self.on_walk.filter(|_| snapshot.head.capture.thread != 0) {
            on_walk(slot, ticks, snapshot, frames, stop);
        }
        if let Some(probing) = &mut self.probing {
            probing.look(walk);
        }
    }

    fn on_end(&mut self) {
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
        let mut hooks = DeveloperHooks::new(Hooks { retune: Some(every), ..Hooks::default() }, None);
        let start = Instant::now();
        let shortest = Aim { interval_ns: 10, tick_ns: 8, period_ns: 1 };
        assert_eq!(hooks.next_aim(start, shortest), None, "too early");
        let aims: Vec<Aim> =
            (1..=6).filter_map(|n| hooks.next_aim(start + every * 2 * n, shortest)).collect();
        assert_eq!(aims.iter().map(|aim| aim.interval_ns).collect::<Vec<_>>(), [30, 20, 50, 40, 10, 30]);
        assert_eq!(aims.iter().map(|aim| aim.period_ns).collect::<Vec<_>>(), [3, 2, 5, 4, 1, 3]);
        assert_eq!(DeveloperHooks::new(Hooks::default(), None).next_aim(start + every, shortest), None);
    }
}
