//! Native frames appear in their place on the stack: above, between and below Java frames.

use java_tests::{
    CUT_SHARE, Stack, Stacks, Workload, create_end_file, native_library, on_every_jdk, on_jdks,
};

/// Frame that marks missing native frames.
const MISSING: &str = "[native frames missing]";

/// Returns whether the frames of `names` are on the stack in this order, possibly with others in between.
fn has_in_order(stack: &Stack, names: &[&str]) -> bool {
    let mut frames = stack.frames.iter();
    names.iter().all(|name| frames.any(|frame| frame == name))
}

fn is_rooted(stack: &Stack) -> bool {
    stack.stop.is_none() && stack.has("start_thread") && !stack.has(MISSING)
}

/// Returns whether the stack was not copied, which happens only if the sampler thread is delayed and the pool is
/// exhausted.
fn is_not_copied(stack: &Stack) -> bool {
    matches!(stack.stop.as_deref(), Some("not_copied" | "pool_exhausted"))
}

on_every_jdk! { concurrent;
    fn jni_library(jdk) {
        let (early, late) = (native_library("jniheavy"), native_library("jnilate"));
        let run = Workload::new("JniHeavy").argument(4).argument(early.display()).argument(late.display());
        let run = run.record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        run.assert_shares(&["JniHeavy.spin", "JniHeavy.callBack", "JniHeavy.late"], 0.01);

        let chain = ["JniHeavy.main", "JniHeavy.spin", "Java_JniHeavy_spin", "with_alloca", "with_locals", "innermost"];
        let is_whole = |stack: &Stack| stack.has_chain(&chain) && is_rooted(stack);
        run.assert_failures_are_rare(&stacks.below("innermost"), CUT_SHARE, is_whole);
        let spin = stacks.ns_below("innermost");
        assert!(spin as f64 >= 0.95 * stacks.ns_below("JniHeavy.spin") as f64, "{spin}");

        let callback = ["JniHeavy.main", "JniHeavy.callBack", "Java_JniHeavy_callBack", "call_java", "jni_CallStaticLongMethod"];
        run.assert_failures_are_rare(&stacks.below("JniHeavy.work"), CUT_SHARE, |stack| {
            stack.has_chain(&callback)
                && has_in_order(stack, &["jni_CallStaticLongMethod", "JavaCalls::call_helper", "JniHeavy.work"])
                && is_rooted(stack)
        });

        // The library that is loaded late is found within 0.1 s of the 3 s in which it is called, or later if the
        // sampler thread is delayed.
        let late = stacks.below("JniHeavy.late");
        let chain = ["JniHeavy.main", "JniHeavy.late", "Java_JniHeavy_late", "late_spin"];
        let whole = late.share_where(|stack| stack.has_chain(&chain) && is_rooted(stack));
        assert!(whole >= 0.75, "{whole} of the samples in the late library: {:?}", late.all);
    }
}

on_every_jdk! { concurrent;
    /// Stacks of GC threads reach the start function of the C library.
    fn gc_threads(jdk) {
        let run = Workload::new("AllocHeavy").argument(0.5).jvm_option("-XX:+UseParallelGC").jvm_option("-Xmx256m").jvm_option("-Xmn8m");
        let run = run.record(jdk);
        run.assert_exit_code(0);
        let gc = run.stacks().below("[GC]");
        assert!(gc.total_ns() > 200_000_000, "GC threads burnt {} ns", gc.total_ns());
        run.starvation.assert_explains_loss(gc.ns_where(is_not_copied));
        // The assembler routine SpinPause has no unwind table.
        let spins = |stack: &Stack| stack.has(MISSING) && stack.frames.last().is_some_and(|leaf| leaf == "SpinPause");
        let is_judged = |stack: &Stack| !spins(stack) && !is_not_copied(stack);
        let gc = Stacks { all: gc.all.into_iter().filter(is_judged).collect() };
        run.assert_failures_are_rare(&gc, CUT_SHARE, is_rooted);
        run.assert_failures_are_rare(&gc, CUT_SHARE, |stack| {
            let of_loop = |name: &String| ["GCTaskThread::run", "GangWorker::", "WorkerThread::run"].iter().any(|run| name.starts_with(run));
            stack.frames.iter().any(of_loop)
        });
    }
}

on_every_jdk! { concurrent;
    /// Stacks of compiler threads are complete, and the method that is compiled has a valid name.
    fn compiler_threads(jdk) {
        let run = Workload::new("Lambdas").argument(1).jvm_option("-Xcomp").record(jdk);
        run.assert_exit_code(0);
        let jit = run.stacks().below("[JIT compiler]");
        let whole = |stack: &Stack| is_rooted(stack) && stack.has("CompileBroker::compiler_thread_loop");
        assert!(jit.ns_where(whole) > 0, "no sample of a compiler thread is whole: {:?}", jit.all);
        run.starvation.assert_explains_loss(jit.ns_where(is_not_copied));
        let copied = Stacks { all: jit.all.iter().filter(|stack| !is_not_copied(stack)).cloned().collect() };
        run.assert_failures_are_rare(&copied, CUT_SHARE, whole);
        // A compilation that is shorter than the time between drains has ended when its sample is read.
        let labels = |stack: &Stack| {
            stack.frames.iter().filter_map(|name| name.strip_prefix("[compiling] ")).map(str::to_owned).collect::<Vec<_>>()
        };
        for label in jit.all.iter().flat_map(labels) {
            let plain = label.chars().all(|c| c.is_alphanumeric() || "._$<>/+-".contains(c));
            assert!(plain && label.contains('.'), "{label:?} is not a method name");
        }
    }
}

on_jdks! { concurrent 25;
    /// If a program may have few descriptors, the files with the names of native functions are open only while they
    /// are read.
    fn no_library_stays_open_where_descriptors_are_few(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, recording) = (folder.path().join("end-file"), folder.path().join("recording.tickwalk"));
        let burner = Workload::burner(1, &end_file);
        let burner = burner.launcher(&["prlimit", "--nofile=1024:1024"]);
        let mut looks = 0;
        let options = format!("interval=1ms,file={}", recording.display());
        let finished = burner.run_with_agent_watched_by(jdk, &options, |pid, _| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
            let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let libraries = open.filter(|path| path.to_string_lossy().contains(".so")).collect::<Vec<_>>();
            // One may be open at the moment, because a name is being read.
            assert!(libraries.len() <= 1, "{libraries:?}");
            looks += 1;
            if looks == 3 {
                create_end_file(&end_file);
            }
        });
        assert_eq!((finished.exit_code(), finished.stderr.as_str()), (0, ""));
        let mut export = std::process::Command::new(java_tests::binaries::tickwalk());
        export.args(["export", "--format", "collapsed"]).arg(&recording);
        let stacks = Stacks::parse_collapsed(&java_tests::run(export, |_| ()).stdout);
        assert!(stacks.all.iter().any(|stack| stack.has("start_thread")), "native functions have names: {stacks:?}");
    }
}
