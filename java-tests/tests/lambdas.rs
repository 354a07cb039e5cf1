//! Stacks through hidden classes, LambdaForms, exceptions and virtual threads.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk, on_jdks, span_tolerance_ns};

on_every_jdk! { concurrent;
    fn streams_method_handles_and_strings(jdk) {
        let run = Workload::new("Lambdas").argument(4).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        run.assert_shares(&["Lambdas.stream", "Lambdas.handle", "Lambdas.text"], 0.01);
        let work = stacks.below("Lambdas.step");
        let rooted = work.share_where(|stack| stack.stop.is_none() && stack.has("Lambdas.main"));
        assert!(rooted >= 0.98, "{rooted} of the samples in step reach main: {:?}", run.summary().stops);
    }
}

on_every_jdk! { concurrent;
    /// The time to fill stack traces and to unwind is below the method that throws and catches.
    fn exceptions(jdk) {
        let run = Workload::new("Exceptions").argument(3).record(jdk);
        run.assert_exit_code(0);
        // Two in a hundred stacks may be cut inside the VM.
        let truth = run.truth.method_cpu_ns("Exceptions.throwAndCatch");
        let sampled = run.stacks().ns_below("Exceptions.throwAndCatch");
        let (tolerance, lost) = (span_tolerance_ns(INTERVAL_NS) + truth / 50, run.starvation_loss_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + lost + tolerance,
            "sampled {sampled}, true {truth}, tolerance {tolerance}, lost {lost}"
        );
    }
}

on_jdks! {
    21, 25;
    /// The stack of a mounted virtual thread is complete, or marked as cut where its frames are in the heap.
    fn virtual_threads(jdk) {
        let run = Workload::new("VirtualThreads").argument(4).record(jdk);
        run.assert_exit_code(0);
        let burner = run.stacks().below("VirtualThreads.burn");
        assert!(burner.total_ns() > 0);
        let accounted = burner.share_where(|stack| match stack.stop.as_deref() {
            None => stack.count("VirtualThreads.descend") == 30,
            Some(stop) => stop == "continuation_barrier",
        });
        assert!(accounted >= 0.97, "{accounted} of the samples in burn are complete or marked: {:?}", run.summary().stops);
    }
}
