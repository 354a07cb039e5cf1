//! A thousand frames are a thousand frames, whether interpreted, compiled or inlined into each other.

use java_tests::{Workload, on_every_jdk};

on_every_jdk! { beside;
    fn thousand_frames_and_the_root(jdk) {
        let run = Workload::new("DeepRecursion").argument(3).argument(1000).record(jdk);
        run.assert_exit_code(0);
        let burner = run.stacks().below("DeepRecursion.burn");
        let truth = run.truth.method_cpu_ns("DeepRecursion.burn");
        let (sampled, starved) = (burner.total_ns(), run.starved_ns());
        assert!(
            (sampled + starved) as f64 >= 0.9 * truth as f64,
            "{sampled} of {truth}, starved {starved}; {:?}, {:?}",
            run.summary().cpu_ns,
            run.summary().stops
        );
        let whole = burner.share_where(|stack| {
            stack.stop.is_none() && stack.count("DeepRecursion.recurse") >= 1000 && stack.has("DeepRecursion.main")
        });
        assert!(whole >= 0.98, "only {whole} of the samples in the burner have all frames; {:?}", run.summary().stops);
        // More frames than there are would be as wrong as fewer.
        assert_eq!(burner.ns_where(|stack| stack.count("DeepRecursion.recurse") > 1000), 0);
    }
}
