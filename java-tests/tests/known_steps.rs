//! A walk by the steps of earlier walks gives the same stack as one that looks at each frame by itself.

use java_tests::{Jdk, Workload, native_library, on_every_jdk, on_jdks};

/// Numbers of the agent's line on compared walks.
fn compared(stderr: &str) -> [u64; 5] {
    let line =
        stderr.lines().find(|line| line.contains("compared walks: ")).expect("the agent reports comparisons");
    let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    numbers.collect::<Vec<u64>>().try_into().expect("five numbers")
}

/// Asserts that every walk by known steps equals one without, and that there were enough of them.
fn compare(jdk: &Jdk, workload: Workload, least: u64) {
    let run = workload
        .record_option("--interval=1ms")
        .record_option("--agent-option=debug=compare-walks")
        .record(jdk);
    run.assert_exit_code(0);
    let [equal, different, apart, named, misnamed] = compared(&run.stderr);
    assert_eq!((different, misnamed), (0, 0), "{}", run.stderr);
    assert!(equal >= least, "{equal} walks compared, {apart} apart");
    assert!(named >= least, "{named} stacks named twice");
}

fn beside_another_timer_workload() -> Workload {
    let library = native_library("foreigntimer");
    Workload::new("ForeignTimer").argument(2).argument(library.display()).argument("thread").argument(4000)
}

// 250 samples a second on a 250 Hz kernel.
on_every_jdk! { concurrent; fn in_deep_stacks(jdk) { compare(jdk, Workload::new("DeepRecursion").argument(2).argument(100), 300); } }
on_every_jdk! { concurrent; fn where_hardly_two_stacks_are_alike(jdk) { compare(jdk, Workload::new("RandomRecursion").argument(2), 20); } }
on_every_jdk! { concurrent; fn under_deoptimisation(jdk) { compare(jdk, Workload::new("DeoptStorm").argument(4), 100); } }
on_every_jdk! { concurrent; fn while_classes_are_unloaded(jdk) { compare(jdk, Workload::new("ClassChurn").argument(2).argument(12).argument(3), 50); } }
on_every_jdk! { concurrent; fn beside_another_timer(jdk) { compare(jdk, beside_another_timer_workload(), 100); } }
on_jdks! { concurrent 21, 25; fn in_virtual_threads(jdk) { compare(jdk, Workload::new("FrozenStack").argument(2).argument(150).argument(20), 50); } }
