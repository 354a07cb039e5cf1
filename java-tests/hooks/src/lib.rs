//! The observer that `debug=` of the agent's options switches on, in builds with developers' hooks only.
//!
//! Problem: tests repeat, compare and time walks, and disturb the sampler thread, which users must never get.
//! Approach: [`DeveloperHooks`] observes the sampler thread and does what [`Hooks`] say.
//! Invariant: default [`Hooks`] change nothing.
#![forbid(unsafe_code)]

mod probe;

use std::time::Instant;

use sampler_thread::hooks::{Hooks, ObservedWalk, Observer};
use sampler_thread::period::aim::Aim;
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{Frame, Memory, Stop};

use crate::probe::Probing;

/// Receives the walk of the request with this slot and time stamp: what was walked, its frames, why the walk ended.
pub type OnWalk = fn(u32, u64, &Snapshot<'_>, &[Frame], Stop);

/// Factors by which [`Hooks::retune`] multiplies the shortest interval and the timers' period, one after the other.
const FACTORS: [u64; 5] = [1, 3, 2, 5, 4];

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
    use std::time::Duration;

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
