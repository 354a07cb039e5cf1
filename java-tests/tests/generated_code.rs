//! Code that the VM generates has the names of its routines, not that of the blob they share.

use java_tests::{Stacks, Workload, create_end_file, on_every_jdk, stacks_of, tickwalk};

on_every_jdk! { concurrent;
    /// The program copies arrays and calls interface methods of many classes.
    fn routines_have_names(jdk) {
        let run = Workload::new("RegexStrings").argument(4).record_option("--interval=1ms").record(jdk);
        run.assert_exit_code(0);
        let hot = run.stacks().hot_methods();
        let ns_of = |has: &dyn Fn(&str) -> bool| -> u64 {
            hot.iter().filter(|method| has(&method.name)).map(|method| method.self_ns).sum()
        };
        let copies = ns_of(&|name| name.contains("_arraycopy"));
        let dispatch = ns_of(&|name| name == "itable stub" || name == "vtable stub");
        assert!(copies > 0 && dispatch > 0, "arrays {copies} ns, dispatch {dispatch} ns: {hot:?}");
        let blobs = ns_of(&|name| name.starts_with("StubRoutines (") || name.starts_with("vtable chunks"));
        // Padding between two routines has no name.
        assert!(blobs * 50 <= copies + dispatch, "{blobs} of {copies} and {dispatch} ns in blobs: {hot:?}");
    }
}

/// Asserts that the newest frames of both methods are the routines that they call, each below its method.
fn assert_named(stacks: &Stacks) {
    for (method, routine) in [("Routines.digest", "sha512_implCompress"), ("Routines.delete", "_arraycopy")] {
        let below = stacks.below(method);
        assert!(below.total_ns() > 200_000_000, "{method} has {} ns", below.total_ns());
        let whole = |stack: &java_tests::Stack| stack.stop.is_none() && stack.has("Routines.main");
        let named = below.share_where(|stack| {
            whole(stack) && stack.frames.last().is_some_and(|leaf| leaf.contains(routine))
        });
        assert!(named >= 0.8, "{named} of {method} in {routine}: {:?}", below.hot_methods());
    }
    let lost = stacks.ns_where(|stack| {
        stack.frames.last().is_some_and(|leaf| leaf.contains("_impl") || leaf.contains("_arraycopy"))
            && !stack.has("Routines.main")
    });
    assert!(lost * 50 <= stacks.total_ns(), "{lost} ns in routines without their caller");
    assert_eq!(
        stacks.ns_where(|stack| stack.frames.iter().any(|frame| frame.starts_with("StubRoutines ("))),
        0
    );
}

on_every_jdk! { concurrent;
    /// A routine that uses the frame pointer for data, and the copy of a StringBuilder.
    fn digests_and_copies_have_names_and_callers(jdk) {
        let run = Workload::new("Routines").argument(4).record_option("--interval=1ms").record(jdk);
        run.assert_exit_code(0);
        assert_named(&run.stacks());
    }
}

on_every_jdk! { concurrent;
    /// The VM generated them before the agent came.
    fn routines_have_names_after_attaching(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, recording) = (folder.path().join("end-file"), folder.path().join("recording.tickwalk"));
        let mut attached = None;
        let program = Workload::new("Routines").argument(1).argument(end_file.display());
        let program = program.run_unprofiled_watched(jdk, |pid, cpu_ns| {
            // By then both methods are compiled.
            if cpu_ns > 500_000_000 {
                attached.get_or_insert_with(|| {
                    let recording = recording.display().to_string();
                    let options = ["attach", "--duration", "3s", "--interval", "1ms", "-o"];
                    let finished = tickwalk(&[&options[..], &[&recording, &pid.to_string()]].concat());
                    create_end_file(&end_file);
                    finished
                });
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let attached = attached.expect("the workload told its CPU time");
        assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
        assert_named(&stacks_of(&recording));
    }
}
