//! A stack of a thousand frames is sampled with a thousand frames, interpreted, compiled or inlined; deeper ones and
//! large native frames as far as the options allow.

use java_tests::{Run, Stack, Stacks, Workload, native_library, on_every_jdk};

/// Asserts that all but a fiftieth of `stacks` end at the root and match; where the machine delayed the sampler, copies
/// of this size may have met a full pool.
#[track_caller]
fn assert_whole(run: &Run, stacks: &Stacks, matches: impl Fn(&Stack) -> bool) {
    let whole = stacks.ns_where(|stack| stack.stop.is_none() && matches(stack));
    let (total, starved) = (stacks.total_ns(), run.starvation_loss_ns());
    assert!(
        whole + starved >= total / 50 * 49,
        "{whole} of {total}, starved {starved}; {:?}",
        run.summary().stops
    );
}

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

on_every_jdk! { concurrent;
    /// All frames of a stack beyond the depth of the usual stacks; with a lower `depth` the newest ones.
    fn samples_twelve_thousand_frames(jdk) {
        let workload = Workload::new("DeepRecursion").argument(2).argument(12_000).jvm_option("-Xss16m");
        let workload = workload.record_option("--agent-option=maxstack=4m");
        let run = workload.clone().record(jdk);
        run.assert_exit_code(0);
        let burn = run.stacks().below("DeepRecursion.burn");
        assert!(burn.total_ns() > 1_000_000_000, "{:?}", run.summary().stops);
        assert_whole(&run, &burn, |stack| {
            stack.count("DeepRecursion.recurse") == 12_000 && stack.has("DeepRecursion.main")
        });
        // A page and a table of such stacks are written like any other.
        assert!(run.tickwalk(&["top"]).contains("DeepRecursion.burn"));
        let page = std::fs::metadata(run.flamegraph()).expect("a flame graph page");
        assert!(page.len() > 0);

        let run = workload.record_option("--agent-option=depth=100").record(jdk);
        run.assert_exit_code(0);
        let burn = run.stacks().below("DeepRecursion.burn");
        let cut = burn.share_where(|stack| {
            stack.stop.as_deref() == Some("depth_limit") && stack.frames.len() == 100
        });
        assert!(cut >= 0.98, "{cut} of the samples have 100 frames; {:?}", run.summary().stops);
    }
}

on_every_jdk! { concurrent;
    /// A native frame of 1.1 MB lies between Java frames.
    fn samples_below_a_large_native_frame(jdk) {
        let library = native_library("largestack");
        let run = Workload::new("LargeStack").argument(1).argument(library.display()).jvm_option("-Xss4m");
        let run = run.record_option("--agent-option=maxstack=2m").record(jdk);
        run.assert_exit_code(0);
        let spin = run.stacks().below("large_spin");
        assert!(spin.total_ns() > 500_000_000, "{:?}", run.summary().stops);
        let chain = ["LargeStack.main", "LargeStack.spin", "Java_LargeStack_spin", "large_frame", "large_spin"];
        assert_whole(&run, &spin, |stack| stack.has_chain(&chain));
    }
}
