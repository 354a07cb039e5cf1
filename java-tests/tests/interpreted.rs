//! Walks through interpreted frames (`-Xint`) reach the root.

use java_tests::{INTERVAL_NS, Stacks, Workload, on_every_jdk, span_tolerance_ns};

/// Returns the share of stacks that are complete, among those with a frame of the workload.
fn whole_share(stacks: &Stacks, class: &str) -> f64 {
    let prefix = format!("{class}.");
    let java = Stacks {
        all: stacks
            .all
            .iter()
            .filter(|stack| stack.frames.iter().any(|frame| frame.starts_with(&prefix)))
            .cloned()
            .collect(),
    };
    let main = format!("{class}.main");
    java.share_where(|stack| stack.stop.is_none() && stack.has(&main))
}

on_every_jdk! { concurrent;
    fn frequent_calls(jdk) {
        let run = Workload::new("Megamorphic").argument(3).jvm_option("-Xint").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        let whole = whole_share(&stacks, "Megamorphic");
        assert!(whole > 0.98, "{whole} of the Java samples reach main: {:?}", run.summary().stops);
        let truth = run.truth.method_cpu_ns("Megamorphic.sum");
        let below_main = stacks.ns_below("Megamorphic.main");
        let tolerance = span_tolerance_ns(INTERVAL_NS) + truth / 50 + run.starvation_loss_ns();
        assert!(below_main + tolerance >= truth, "main has {below_main} of {truth}, tolerance {tolerance}");
    }
}

on_every_jdk! { concurrent;
    fn deep_stacks(jdk) {
        let run = Workload::new("DeepRecursion").argument(2).argument(500).jvm_option("-Xint").record(jdk);
        run.assert_exit_code(0);
        let burn = run.stacks().below("DeepRecursion.burn");
        let whole = burn.share_where(|stack| {
            stack.stop.is_none() && stack.count("DeepRecursion.recurse") == 500 && stack.has("DeepRecursion.main")
        });
        assert!(whole > 0.98, "{whole} of the samples in the burner have all frames: {:?}", run.summary().stops);
    }
}
