//! Code that the VM generates has the names of its routines, not that of the blob they share.

use java_tests::{Workload, on_every_jdk};

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
