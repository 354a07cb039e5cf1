//! Compares known amounts of CPU time with the profile.
//!
//! Two comparisons. Each way of burning CPU time reads its thread's clock before and after; the samples below its
//! method should add up to the difference. And the account should add up to the CPU time of the whole JVM, which
//! getrusage returns after its end.

use std::fmt;

use profile::query::flat::{Flat, Order};
use profile::query::selection::Selection;
use profile::query::summary::Summary;

use super::jvm::Run;

/// One way of burning CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub name: String,
    /// CPU time by the thread's clock, in nanoseconds.
    pub truth_ns: u64,
    /// Part of it in user mode; `None` if the clock that distinguishes the modes is too coarse.
    pub user_ns: Option<u64>,
    /// CPU time of samples with the method on their stack.
    pub profile_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub ways: Vec<Way>,
    pub interval_ns: u64,
    /// User and system time of the whole JVM by getrusage.
    pub rusage_ns: (u64, u64),
    /// Sum of the account: kernel time, time before timers ran, and the profiler's own time.
    pub account_ns: u64,
    /// Part of it that the profiler's threads used, which no profile shows.
    pub own_ns: u64,
    /// Part of it that samples represent.
    pub sampled_ns: u64,
    /// Part of it whose samples were lost.
    pub lost_ns: u64,
}

impl Comparison {
    /// Compares the profile of `run` with the CPU times that the program printed.
    pub fn new(run: &Run) -> anyhow::Result<Self> {
        let methods = Flat::of(&run.recording, &Selection::default(), 0)?.0.methods(Order::TotalTime);
        let summary = Summary::new(&run.profile);
        let way = |line: &Vec<String>| {
            let [name, cpu, user] = line.as_slice() else { return None };
            let method = format!("TickwalkExperiment.{name}");
            let profile_ns = methods.iter().find(|cost| cost.name == method).map_or(0, |cost| cost.total_ns);
            let user_ns = user.parse::<u64>().ok();
            Some(Way { name: name.clone(), truth_ns: cpu.parse().ok()?, user_ns, profile_ns })
        };
        Ok(Self {
            ways: run.truths.iter().filter_map(way).collect(),
            interval_ns: summary.interval_ns,
            rusage_ns: (run.user_ns, run.system_ns),
            account_ns: summary.cpu_ns.kernel + summary.cpu_ns.before_timer + summary.sampler.cpu_ns,
            own_ns: summary.sampler.cpu_ns,
            sampled_ns: summary.cpu_ns.sampled,
            lost_ns: summary.cpu_ns.lost_ns(),
        })
    }

    /// Returns the error of the account relative to getrusage.
    pub fn account_error(&self) -> f64 {
        error(self.account_ns, self.rusage_ns.0 + self.rusage_ns.1)
    }
}

/// Returns the error of `measured` relative to `truth`, negative if too small; 0 if `truth` is 0.
pub fn error(measured: u64, truth: u64) -> f64 {
    if truth == 0 { 0.0 } else { measured as f64 / truth as f64 - 1.0 }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        writeln!(
            f,
            "{:<14}{:>12}{:>8}{:>8}{:>14}{:>9}",
            "way", "truth ms", "user", "system", "profile ms", "error"
        )?;
        for way in &self.ways {
            let user = way.user_ns.map(|user| (user as f64 / way.truth_ns.max(1) as f64).min(1.0));
            let percent =
                |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0));
            let (user, system) = (percent(user), percent(user.map(|user| 1.0 - user)));
            let error = error(way.profile_ns, way.truth_ns) * 100.0;
            writeln!(
                f,
                "{:<14}{:>12.1}{user:>8}{system:>8}{:>14.1}{error:>+8.2} %",
                way.name,
                ms(way.truth_ns),
                ms(way.profile_ns)
            )?;
        }
        let (user, system) = self.rusage_ns;
        writeln!(
            f,
            "\nwhole JVM: {:.1} ms by getrusage ({:.1} user, {:.1} system), {:.1} ms by the account ({:+.2} %), \
             of which {:.1} ms sampled, {:.1} ms lost, {:.1} ms the profiler's own",
            ms(user + system),
            ms(user),
            ms(system),
            ms(self.account_ns),
            self.account_error() * 100.0,
            ms(self.sampled_ns),
            ms(self.lost_ns),
            ms(self.own_ns)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign() {
        assert!((error(99, 100) + 0.01).abs() < 1e-9);
        assert!((error(101, 100) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn a_table_with_errors() {
        let way = |name: &str, user_ns, profile_ns| Way {
            name: name.to_owned(),
            truth_ns: 1_000_000_000,
            user_ns,
            profile_ns,
        };
        let comparison = Comparison {
            ways: vec![way("spin", Some(750_000_000), 990_000_000), way("naps", None, 1_004_000_000)],
            interval_ns: 10_000_000,
            rusage_ns: (1_900_000_000, 100_000_000),
            account_ns: 1_990_000_000,
            sampled_ns: 1_980_000_000,
            lost_ns: 0,
            own_ns: 5_000_000,
        };
        let table = comparison.to_string();
        assert!(
            table.contains("spin                1000.0    75 %    25 %         990.0   -1.00 %"),
            "{table}"
        );
        assert!(
            table.contains("naps                1000.0       -       -        1004.0   +0.40 %"),
            "{table}"
        );
        assert!(table.contains("1990.0 ms by the account (-0.50 %)"), "{table}");
    }
}
