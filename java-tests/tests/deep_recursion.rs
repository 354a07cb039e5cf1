//! A stack of a thousand frames is sampled with a thousand frames, interpreted, compiled or inlined.

use java_tests::{Workload, on_every_jdk};

on_every_jdk! { concurrent;
    fn samples_all_thousand_frames(jdk) {
        let run = Workload::new("DeepRecursion").argument(3).argument(1000).record(jdk);
        run.assert_exit_code(0);
        let burn = run.stacks().below("DeepRecursion.burn");
        let truth = run.truth.method_cpu_ns("DeepRecursion.burn");
        let (sampled, starved) = (burn.total_ns(), run.starvation_loss_ns());
        assert!(
            (sampled + starved) as f64 >= 0.9 * truth as f64,
            "{sampled} of {truth}, starved {starved}; {:?}, {:?}",
            run.summary().cpu_ns,
            run.summary().stops
        );
        let whole = burn.share_where(|stack| {
            stack.stop.is_none() && stack.count("DeepRecursion.recurse") >= 1000 && stack.has("DeepRecursion.main")
        });
        assert!(whole >= 0.98, "only {whole} of the samples in the burner have all frames; {:?}", run.summary().stops);
        // More frames than exist would be an error as well.
        assert_eq!(burn.ns_where(|stack| stack.count("DeepRecursion.recurse") > 1000), 0);
    }
}
