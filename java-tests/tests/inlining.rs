//! Inlined methods have frames, in the order of the calls.

use java_tests::{INTERVAL_NS, Workload, binomial_tolerance, on_every_jdk};

on_every_jdk! { concurrent;
    fn inlined_methods_are_in_order(jdk) {
        let run = Workload::new("InlinedChain").argument(3).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks().below("InlinedChain.d");
        let truth = run.truth.method_cpu_ns("InlinedChain.run");
        run.assert_method_time("InlinedChain.run", INTERVAL_NS);
        // While the callers are interpreted and the loop in d is compiled, the callers take a part of the time.
        assert!(stacks.total_ns() >= truth / 2, "d has {} of {truth}", stacks.total_ns());
        let chain = ["InlinedChain.run", "InlinedChain.a", "InlinedChain.b", "InlinedChain.c", "InlinedChain.d"];
        let in_order = stacks.share_where(|stack| stack.has_chain(&chain) && stack.has("InlinedChain.main"));
        assert!(in_order >= 0.99, "{in_order} of the samples in d have run;a;b;c;d below main");
        // d has the loop, so it is the leaf.
        let leaf = stacks.share_where(|stack| stack.frames.last().is_some_and(|leaf| leaf == "InlinedChain.d"));
        assert!(leaf >= 0.97, "d is the leaf of {leaf} of its samples");
    }
}

on_every_jdk! { concurrent;
    /// Eight receiver classes at one call site: nothing is inlined, and itable stubs appear as leaves.
    fn megamorphic_calls(jdk) {
        let run = Workload::new("Megamorphic").argument(4).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks().below("Megamorphic.sum");
        let samples = run.summary().thread("main").samples;
        for shape in 0..8 {
            let name = format!("Megamorphic$Shape{shape}.area");
            let share = stacks.ns_below(&name) as f64 / stacks.total_ns() as f64;
            // Calls and stubs, at most a tenth of the time, belong to none of the eight.
            let tolerance = binomial_tolerance(0.125, samples) + 0.0125;
            assert!((share - 0.125).abs() <= tolerance, "{name} has {share}, tolerance {tolerance}");
        }
    }
}
