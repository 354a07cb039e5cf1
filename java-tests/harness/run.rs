//! The result of a workload that ran under the profiler.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::collector::summary_of;
use crate::command;
use crate::process::Finished;
use crate::stacks::{Stack, Stacks};
use crate::starvation::Starvation;
use crate::summary::Summary;
use crate::tolerance::{binomial_tolerance, rare_events, span_tolerance_ns};
use crate::truth::Truth;

/// A workload that ran under the profiler.
#[derive(Debug)]
pub struct Run {
    /// Exit code of the command, as a shell reports it.
    pub exit_code: i32,
    /// Standard output of the command.
    pub stdout: String,
    /// Standard error of the command.
    pub stderr: String,
    /// The known answer, as the workload printed it.
    pub truth: Truth,
    /// The recording file.
    pub recording: PathBuf,
    /// Scheduling delays of the machine during the run.
    pub starvation: Starvation,
    summary: Option<Summary>,
    folder: TempDir,
}

impl Run {
    pub(crate) fn new(
        finished: Finished,
        recording: PathBuf,
        summary: Option<&Path>,
        folder: TempDir,
    ) -> Self {
        let summary = summary.and_then(|path| std::fs::read_to_string(path).ok()).map(|text| {
            let summary: Summary = serde_json::from_str(&text).unwrap_or_else(|error| {
                panic!("the summary does not have the expected form: {error}\n{text}")
            });
            Summary { starvation: finished.starvation.clone(), ..summary }
        });
        Self {
            exit_code: finished.exit_code(),
            truth: Truth::parse(&finished.stdout),
            stdout: finished.stdout,
            stderr: finished.stderr,
            recording,
            summary,
            starvation: finished.starvation,
            folder,
        }
    }

    /// Returns the summary that `tickwalk record` wrote.
    ///
    /// # Panics
    /// If no summary was written.
    #[track_caller]
    pub fn summary(&self) -> &Summary {
        self.summary
            .as_ref()
            .unwrap_or_else(|| panic!("no summary; exit {}\n{}", self.exit_code, self.stderr))
    }

    /// Returns the path of the flame graph page.
    pub fn flamegraph(&self) -> PathBuf {
        self.folder.path().join("flamegraph.html")
    }

    /// Returns the stacks in the recording.
    ///
    /// # Panics
    /// If the recording cannot be exported.
    #[track_caller]
    pub fn stacks(&self) -> Stacks {
        Stacks::parse_collapsed(&self.tickwalk(&["export", "--format", "collapsed", "--unit", "ns"]))
    }

    /// Returns the stacks in the recording, each with the name of its thread as the first frame.
    ///
    /// # Panics
    /// If the recording cannot be exported.
    #[track_caller]
    pub fn stacks_by_thread(&self) -> Stacks {
        let export = ["export", "--format", "collapsed", "--unit", "ns", "--threads"];
        Stacks::parse_collapsed(&self.tickwalk(&export))
    }

    /// Asserts that `is_right` holds for all samples of `stacks`, which are some of this recording, but for those that
    /// a share of `failing` gives by chance.
    ///
    /// Samples are counted by the mean weight of a sample, and each stack has one at least. Those without a copy of the
    /// stack are left out; the measured delays must explain them.
    ///
    /// # Panics
    /// If there are more failures, or none of the samples is left.
    #[track_caller]
    pub fn assert_failures_are_rare(&self, stacks: &Stacks, failing: f64, is_right: impl Fn(&Stack) -> bool) {
        self.starvation_loss_ns();
        let summary = self.summary();
        let mean_ns = (summary.cpu_ns.sampled.cast_unsigned() / summary.samples.max(1)).max(1);
        let samples_of = |stack: &Stack| ((stack.ns + mean_ns / 2) / mean_ns).max(1);
        let (mut all_ns, mut failed, mut wrong) = (0, 0, Vec::new());
        for stack in stacks.all.iter().filter(|stack| !stack.lacks_copy()) {
            all_ns += stack.ns;
            if !is_right(stack) {
                failed += samples_of(stack);
                wrong.push(stack);
            }
        }
        let samples = all_ns / mean_ns;
        let most = rare_events(failing, samples);
        assert!(
            samples > 0 && failed <= most,
            "{failed} of {samples} samples are wrong, by chance {most} at most: {wrong:#?}, {:?}",
            summary.stops
        );
    }

    /// Asserts that the workload ended with this exit code.
    ///
    /// # Panics
    /// If it did not; the message holds its output.
    #[track_caller]
    pub fn assert_exit_code(&self, expected: i32) {
        assert_eq!(self.exit_code, expected, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
    }

    /// Returns the CPU time that has no stack because the sampler thread was delayed and queues or the snapshot pool
    /// were full; 0 on a machine without delays.
    ///
    /// # Panics
    /// If it is more than the measured delays explain.
    #[track_caller]
    pub fn starvation_loss_ns(&self) -> u64 {
        let read;
        let summary = match &self.summary {
            Some(summary) => summary,
            None => {
                read = summary_of(&self.recording, &self.starvation);
                &read
            }
        };
        summary.assert_losses();
        // Where the pool is short of large slabs, a small one holds the newest part of a stack.
        let without_copy_ns = self.stacks().ns_where(Stack::lacks_copy);
        let ns = summary.cpu_ns.lost_before_end().cast_unsigned() + without_copy_ns;
        assert!(
            ns <= self.starvation.allowed_loss_ns().cast_unsigned(),
            "lost {ns} ns, {without_copy_ns} of them sampled without a whole copy; {:?}, {:?}, {:?}",
            self.starvation,
            summary.stops,
            summary.queue
        );
        ns
    }

    /// Asserts that the time sampled below `method`, which ran once and without a break, is the time it used; at most
    /// [`starvation_loss_ns`](Self::starvation_loss_ns) may be missing.
    ///
    /// # Panics
    /// If the difference is larger than the tolerance.
    #[track_caller]
    pub fn assert_method_time(&self, method: &str, interval_ns: u64) {
        let (truth, sampled) = (self.truth.method_cpu_ns(method), self.stacks().ns_below(method));
        let (tolerance, lost) = (span_tolerance_ns(interval_ns), self.starvation_loss_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + lost + tolerance,
            "{method}: sampled {sampled}, true {truth}, tolerance {tolerance}, lost {lost}; {:?}, {:?}, elsewhere {:#?}",
            self.summary().cpu_ns,
            self.summary().stops,
            self.stacks().all.iter().filter(|stack| !stack.has(method)).collect::<Vec<_>>()
        );
    }

    /// Asserts that each method's share of the time sampled below `methods` is its share of the time that the workload
    /// measured; differences of up to `slack` are allowed beside the sampling error.
    ///
    /// The main thread runs the methods in random order, so each sample is an independent draw.
    ///
    /// # Panics
    /// If a share differs by more.
    #[track_caller]
    pub fn assert_shares(&self, methods: &[&str], slack: f64) {
        let stacks = self.stacks();
        let truths: Vec<f64> = methods.iter().map(|name| self.truth.method_cpu_ns(name) as f64).collect();
        let sampled: Vec<f64> = methods.iter().map(|name| stacks.ns_below(name) as f64).collect();
        let (all_truth, all_sampled) = (truths.iter().sum::<f64>(), sampled.iter().sum::<f64>());
        let samples = self.summary().thread("main").samples;
        for ((name, truth), sampled) in methods.iter().zip(truths).zip(sampled) {
            let (truth, sampled) = (truth / all_truth, sampled / all_sampled);
            let tolerance = binomial_tolerance(truth, samples) + slack;
            assert!(
                (sampled - truth).abs() <= tolerance,
                "{name}: sampled {sampled}, true {truth}, tolerance {tolerance}"
            );
        }
    }

    /// Runs `tickwalk ARGUMENTS... RECORDING` and returns its standard output.
    ///
    /// # Panics
    /// If the command fails.
    #[track_caller]
    pub fn tickwalk(&self, arguments: &[&str]) -> String {
        let recording = self.recording.display().to_string();
        command::succeed(&[arguments, &[&recording]].concat()).stdout
    }
}
