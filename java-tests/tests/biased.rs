//! Samples whose newest Java frame is that of a later point are counted, alike by agent and collector.

use java_tests::{Run, Workload, on_every_jdk};

/// Fewest samples from which shares are judged: a share of 25 % is then known to within 3 points, three standard
/// errors.
const FEWEST: u64 = 200;

/// Returns the share of biased samples of the main thread, after the counts of agent, threads and recording were
/// compared.
fn biased_share(run: &Run) -> f64 {
    run.assert_exit_code(0);
    let summary = run.summary();
    assert_eq!(summary.biased, summary.biased_received, "counted by the agent, and of its samples");
    let of_threads: u64 = summary.threads.iter().map(|thread| thread.biased).sum();
    assert_eq!(summary.biased, of_threads, "{:?}", summary.threads);
    let is_noted = summary.biased as f64 >= 0.01 * summary.requests as f64;
    assert_eq!(run.stderr.contains(", biased "), is_noted, "{}", run.stderr);
    // Threads of the compiler have no Java frames, and their share depends on the machine.
    let main = summary.thread("main");
    assert!(main.samples >= FEWEST, "{} samples", main.samples);
    main.biased as f64 / main.samples as f64
}

on_every_jdk! { concurrent;
    /// The interpreter has its bytecode. Compiled code that lists ranges of instructions is exact except at jump
    /// targets; code that lists safepoints only is moved to the next one nearly everywhere.
    fn the_share_follows_from_the_positions_in_the_code(jdk) {
        let share = |options: &[&str]| {
            // 300 samples on a 250 Hz kernel.
            let workload = Workload::new("RegexStrings").argument(1.2);
            let workload = options.iter().fold(workload, |workload, option| workload.jvm_option(option));
            biased_share(&workload.record_option("--interval=4ms").record(jdk))
        };
        let interpreted = share(&["-Xint"]);
        assert!(interpreted == 0.0, "interpreted: {interpreted}");
        let ranges = share(&[]);
        assert!(ranges <= 0.15, "with ranges: {ranges}");
        let safepoints = share(&["-XX:+UnlockDiagnosticVMOptions", "-XX:-DebugNonSafepoints"]);
        assert!(safepoints >= 0.25, "with safepoints only: {safepoints}");
    }
}
