//! Programs that a sampler at fixed distances shows wrongly: phases in phase with the interval, and threads that are
//! far shorter than a tick.

use java_tests::{Run, Stack, Workload, binomial_tolerance, on_jdks, reported_tick_ns};

/// Factor of the binomial deviation that covers the different weights of samples: distances between a half and one and
/// a half intervals, cut to ticks, have a variance of 0.11 squared intervals.
const UNEQUAL_WEIGHTS: f64 = 1.06;

/// Returns the CPU time of each of these methods in samples of the threads that `is_wanted` selects.
fn sampled_ns(run: &Run, methods: &[&str], is_wanted: impl Fn(&Stack) -> bool) -> Vec<u64> {
    let stacks = run.stacks_by_thread();
    methods.iter().map(|method| stacks.ns_where(|stack| is_wanted(stack) && stack.has(method))).collect()
}

on_jdks! { concurrent 11, 25;
    /// Four methods of a quarter of the interval each, where the interval is two and a half ticks.
    ///
    /// A tick meets five places of the interval in turn, a fifth of it apart. A quarter of the interval holds one or
    /// two of them, so sampling every tick shows 20 to 40 % for each method. This holds as well where the places move
    /// because the thread loses its processor now and then. A timer with the period of the interval would meet one
    /// place.
    fn phases_of_the_interval(jdk) {
        const METHODS: [&str; 4] = ["FourPhases.first", "FourPhases.second", "FourPhases.third", "FourPhases.fourth"];
        let interval_us = reported_tick_ns() / 1_000 * 5 / 2;
        let run = Workload::new("FourPhases")
            .argument(8)
            .argument(interval_us * 1_000 / 4)
            .record_option(&format!("--interval={interval_us}us"))
            .record(jdk);
        run.assert_exit_code(0);
        run.summary().assert_account_closes();
        let sampled = sampled_ns(&run, &METHODS, |_| true);
        let all: u64 = sampled.iter().sum();
        let samples = all / (interval_us * 1_000);
        for (method, sampled) in METHODS.iter().zip(&sampled) {
            let share = *sampled as f64 / all as f64;
            let tolerance = |share| UNEQUAL_WEIGHTS * binomial_tolerance(share, samples);
            let (least, most) = (0.2 - tolerance(0.2), 0.4 + tolerance(0.4));
            assert!((least..=most).contains(&share), "{method}: {share}, not {least} to {most}: {sampled} of {all}");
        }
    }
}

on_jdks! { concurrent 11, 25;
    /// Threads of 42 to 336 us, a hundredth to a twelfth of a usual tick: each length has the share of its CPU time.
    ///
    /// Ticks meet them at random, and each that does counts for a tick in the mean, so the samples are independent
    /// draws.
    fn threads_far_shorter_than_a_tick(jdk) {
        const METHODS: [&str; 4] =
            ["TinyThreads.burn42", "TinyThreads.burn84", "TinyThreads.burn168", "TinyThreads.burn336"];
        let run = Workload::new("TinyThreads").argument(0).argument(5_000).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        run.summary().assert_account_closes();
        let is_short = |stack: &Stack| stack.frames.first().is_some_and(|thread| thread.starts_with("tiny-"));
        let sampled = sampled_ns(&run, &METHODS, is_short);
        let burnt = METHODS.map(|method| run.truth.method_cpu_ns(method));
        let (all_sampled, all_burnt) = (sampled.iter().sum::<u64>(), burnt.iter().sum::<u64>());
        let samples = all_sampled / reported_tick_ns();
        for ((method, sampled), burnt) in METHODS.iter().zip(&sampled).zip(&burnt) {
            let (share, truth) = (*sampled as f64 / all_sampled as f64, *burnt as f64 / all_burnt as f64);
            let tolerance = UNEQUAL_WEIGHTS * binomial_tolerance(truth, samples);
            assert!((share - truth).abs() <= tolerance, "{method}: {share}, truth {truth}, tolerance {tolerance}");
        }
        // The rest is the threads' starts and ends, which get no more samples than their time.
        let accounts = run.summary().threads.iter().filter(|thread| thread.name.starts_with("tiny-"));
        let burnt: i64 = accounts.map(|thread| thread.clock_ns() - thread.before_timer_ns).sum();
        let sampled = run.stacks_by_thread().ns_where(is_short);
        let (share, truth) = (all_sampled as f64 / sampled as f64, all_burnt as f64 / burnt as f64);
        let tolerance = UNEQUAL_WEIGHTS * binomial_tolerance(truth.min(1.0), sampled / reported_tick_ns());
        assert!((share - truth).abs() <= tolerance, "methods have {share} of the threads, truth {truth}, tolerance {tolerance}");
    }
}
