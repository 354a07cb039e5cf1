//! Hidden classes, LambdaForms and generated code between the caller and the work.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk, on_jdks, stretch_tolerance_ns};

on_every_jdk! { beside;
    fn streams_handles_and_text(jdk) {
        let run = Workload::new("Lambdas").argument(4).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        run.assert_shares(&["Lambdas.stream", "Lambdas.handle", "Lambdas.text"], 0.01);
        let work = stacks.below("Lambdas.step");
        let rooted = work.share_where(|stack| stack.stop.is_none() && stack.has("Lambdas.main"));
        assert!(rooted >= 0.98, "{rooted} of the samples in step reach main: {:?}", run.summary().stops);
    }
}

on_every_jdk! { beside;
    /// Stack trace filling, unwinding and their stubs count for the method that throws and catches.
    fn exceptions(jdk) {
        let run = Workload::new("Exceptions").argument(3).record(jdk);
        run.assert_exit_code(0);
        // Two in a hundred may be cut on their way through the VM.
        let truth = run.truth.method_cpu_ns("Exceptions.throwAndCatch");
        let sampled = run.stacks().ns_below("Exceptions.throwAndCatch");
        let (tolerance, starved) = (stretch_tolerance_ns(INTERVAL_NS) + truth / 50, run.starved_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + starved + tolerance,
            "sampled {sampled}, true {truth}, tolerance {tolerance}, starved {starved}"
        );
    }
}

on_jdks! {
    21, 25;
    /// The stack of a mounted virtual thread is whole, or marked where its frames are frozen in the heap.
    fn virtual_threads(jdk) {
        let run = Workload::new("VirtualThreads").argument(4).record(jdk);
        run.assert_exit_code(0);
        let burner = run.stacks().below("VirtualThreads.burn");
        assert!(burner.total_ns() > 0);
        let honest = burner.share_where(|stack| match stack.stop.as_deref() {
            None => stack.count("VirtualThreads.descend") == 30,
            Some(stop) => stop == "continuation_barrier",
        });
        assert!(honest >= 0.97, "{honest} of the samples in burn are whole or marked: {:?}", run.summary().stops);
    }
}
