//! Sends the accounts and the statistics of the sampler.
//!
//! Invariant: every number is cumulative, and an account is sent whenever it changed.

use proto::v1::{self, agent_message::Body};
use stackwalk::Memory;

use super::Worker;
use crate::account::add_lost;
use crate::clock;
use crate::pacing::Pacer;
use crate::process::{Gap, Process};
use crate::proof::self_test;
use crate::send::statistics::Stats;

/// CPU time of a thread without an expiration from which on a reason is looked for: fifty ticks of a usual kernel.
const SILENT_NS: u64 = 200_000_000;
/// The same in periods, of which the first expiration may take two.
const SILENT_PERIODS: u64 = 4;

/// Most threads whose clocks are all read once a second, by a system call each.
const MAX_READ: usize = 4096;

impl<P: Process, M: Memory> Worker<P, M> {
    /// Sends statistics with the accounts that changed; `whole` ones include histograms and the accounts of idle
    /// threads.
    pub(super) fn send_statistics(&mut self, whole: bool) {
        self.read_clocks(whole);
        let mut lost = self.stats.lost.clone();
        let Stats { mut before_timer_ns, mut kernel_ns, mut sampled_ns, .. } = self.stats;
        // Read next to the clocks of the threads: sending may take long, and threads go on.
        let process_cpu_ns = clock::process_cpu_nanos().saturating_sub(self.process_cpu_before_ns);
        let mut threads = std::mem::take(&mut self.closed);
        let mut pacer = Pacer::start();
        for account in self.accounts.iter_mut() {
            pacer.rest_if_due();
            let counters = self.process.queue(account.facts.slot).lost();
            if self.has_failed {
                account.abandon(counters);
            }
            if whole && let Some(facts) = self.process.thread(account.facts.slot) {
                // Next to the losses: a handler that was under way when the profile ended may add to both.
                account.facts.expired_ns = facts.expired_ns;
            }
            // Perf events may be a little ahead of the clock until they are corrected.
            account.settle(counters);
            add_lost(&mut lost, &account.lost(counters));
            before_timer_ns += account.facts.before_timer_ns;
            kernel_ns += account.own_ns();
            sampled_ns += account.sampled_ns;
            if account.take_due(whole) {
                threads.push(account.message(counters, None));
            }
        }
        self.flush();
        let sums =
            v1::Statistics { process_cpu_ns, before_timer_ns, kernel_ns, sampled_ns, ..Default::default() };
        let mut statistics = self.statistics(threads, sums);
        if whole || self.sent_lost != lost {
            self.sent_lost.clone_from(&lost);
            statistics.lost = lost;
        }
        if whole {
            self.complete(&mut statistics);
        }
        self.destinations.send(&Body::Statistics(statistics));
    }

    /// Brings all accounts up to date, and looks for the reason why threads used CPU time without an expiration. With
    /// very many threads, the clocks of idle ones are read for `whole` statistics only.
    pub(super) fn read_clocks(&mut self, whole: bool) {
        let threads = self.process.threads();
        let thread_clock = self.tuner.clock().of_threads();
        let period_ns = self.tuner.aim(self.tuner.period_ns(), self.tick.ns).period_ns;
        let silent_ns = SILENT_NS.max(period_ns.saturating_mul(SILENT_PERIODS));
        let reads_all = whole || threads.len() <= MAX_READ;
        let mut silent = Vec::new();
        let mut pacer = Pacer::start();
        for facts in threads {
            pacer.rest_if_due();
            let account = self.accounts.open(&facts, &mut self.namer.names.dictionaries);
            // A thread that ends meanwhile keeps its last reading; its own callback or discovery adds the final one.
            if reads_all || account.dirty {
                let clock_ns = facts.ended_ns.or_else(|| thread_clock.read(facts.tid).ok());
                let has_run = account.read_clock(clock_ns.unwrap_or(0));
                if facts.ended_ns.is_none() && (has_run || account.run_delay_ns.is_none()) {
                    account.run_delay_ns =
                        self.waiting.of_thread(facts.tid, has_run).or(account.run_delay_ns);
                }
            }
            let gap = facts.coverage.open_gap().map(|(cause, _)| cause);
            if gap == Some(Gap::SignalBlocked) || gap.is_none() && account.silent_ns() >= silent_ns {
                silent.push(facts.slot);
            }
        }
        let delays = self.accounts.iter_mut().filter_map(|account| account.run_delay_ns);
        self.waiting.read(delays.sum());
        if silent.is_empty() || self.traces.is_some() {
            return;
        }
        self.process.examine_silent(&silent);
        for facts in silent.iter().filter_map(|slot| self.process.thread(*slot)) {
            let account = self.accounts.open(&facts, &mut self.namer.names.dictionaries);
            account.read_clock(account.clock_ns());
        }
    }

    fn statistics(&self, threads: Vec<v1::ThreadAccount>, sums: v1::Statistics) -> v1::Statistics {
        v1::Statistics {
            time_ns: clock::monotonic_nanos(),
            threads,
            requests: self.stats.requests,
            samples: self.stats.samples,
            // Each time, because requests are the sum of both.
            resolved: self.stats.resolved,
            failed: self.stats.failed(),
            biased: Some(self.stats.biased),
            sampler_cpu_ns: self.own_cpu_ns(),
            delivery: self.destinations.delivery(),
            ..sums
        }
    }

    /// Adds what only whole statistics contain.
    fn complete(&self, statistics: &mut v1::Statistics) {
        let pool = self.process.pool().stats();
        let timers = self.process.timer_counts();
        statistics.stops = self.stats.stops();
        statistics.frames = self.walker.walked_frames;
        statistics.sampling = Some(self.sampling(&timers));
        statistics.handler_cycles = Some(self.stats.handler_cycles.to_message());
        statistics.walk_ns = Some(self.stats.walk_ns.to_message());
        statistics.drain_ns = Some(self.stats.drain_ns.to_message());
        statistics.drain_requests = Some(self.stats.drain_requests.to_message());
        statistics.queue = Some(self.intake.with_state(|_, state| v1::QueueStatistics {
            capacity_bytes: state.queue_sizes.bytes.used,
            most_bytes: state.queue_sizes.bytes.most,
            lost_after_growth: state.queue_sizes.lost_after_growth,
            drained_at_exit: state.drained_at_exit,
            grown: state.queue_sizes.grown,
            pool_bytes: pool.service_bytes() as u64,
            pool_exhausted: pool.exhausted(),
            pool_grown: state.pool_size.grown,
            pool_shrunk: state.pool_size.shrunk,
            pool_high_water: state.pool_size.high_water,
            high_water: state.queue_sizes.high_water,
            shrunk: state.queue_sizes.shrunk,
            largest: state.queue_sizes.largest,
        }));
        statistics.waiting = Some(self.waiting.message());
        statistics.unloading = Some(self.stats.unloading(&self.unloading));
        let self_tests = self.self_tests.iter().cloned().chain(self.compiled_walks.results());
        statistics.self_tests = self_tests.chain(self.access.map(self_test::of_access)).collect();
        statistics.timers = Some(v1::TimerStatistics {
            threads: timers.threads,
            with_timer: timers.with_timer,
            rotations: timers.rotations,
            without_slot: timers.without_slot,
        });
    }
}
