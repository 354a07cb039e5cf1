//! Test support: runs Java workloads with known profiles under the agent, on every supported JDK.
//!
//! Problem: a profile can only be judged where the true CPU times are known.
//! Approach: each file in `workloads/` burns CPU time in one pattern and prints what it did as `truth` lines. This
//! crate compiles the workloads once, runs one under `tickwalk record` or with the agent alone, and returns a [`Run`]
//! that tests compare with the truth.
//! Invariants: the agent and the command are started as processes and never linked; assertions compare counts,
//! identities and ratios, never elapsed time; no test waits for a fixed time.
//!
//! Prerequisites: `java-tests/fetch` (JDKs and compiler) and `cargo build --workspace` (agent with developers' hooks,
//! command).
//!
//! Environment variables:
//! - `TICKWALK_JDKS`: folder of JAVA_HOMEs that are named by version.
//! - `TICKWALK_JDK`: names of JDKs in that folder, separated by commas, or `all`; replaces the four pinned ones.
//! - `TICKWALK_BIN_DIR`: folder with `tickwalk` and `libtickwalk.so`.
//! - `TICKWALK_REQUIRE_JDKS=1`: a missing JDK fails the test instead of skipping it.
//!
//! Functions panic on anything that is missing or malformed; the message names the remedy.
#![forbid(unsafe_code)]

pub mod binaries;
pub mod collector;
mod command;
pub mod fleet;
mod generated_classes;
mod java_classes;
mod jdk;
mod native_library;
pub mod object_store;
mod process;
mod processors;
pub mod python;
pub mod reached;
mod restart;
mod run;
mod stacks;
mod starvation;
mod summary;
mod tolerance;
mod truth;
pub mod visible;
mod workload;

pub use command::{stacks_of, succeed, tickwalk};
pub use generated_classes::GeneratedClasses;
pub use java_classes::{classes, java_example, javac};
pub use jdk::{Jdk, on_jdk, on_jdk_concurrently, on_jdk_exclusively};
pub use native_library::{api_client, api_example, native_library};
pub use process::{Finished, run};
pub use processors::pending_signals;
pub use restart::run_through_restart;
pub use run::Run;
pub use stacks::{MethodWeight, Stack, Stacks};
pub use starvation::Starvation;
pub use summary::{CpuTime, Percentiles, Sampling, Summary, ThreadAccount, VirtualThread};
pub use tolerance::{
    CUT_SHARE, INTERVAL_NS, MAX_TICK_DELAY_NS, TICK_NS, binomial_tolerance, rare_events, reported_tick_ns,
    span_tolerance_ns, spans_tolerance_ns,
};
pub use truth::Truth;
pub use workload::{CARRIER_CLOCK_OPTION, Workload, create_end_file};

/// Makes one test per JDK from a function of a [`Jdk`]: `name::jdk11`, `name::jdk17`, ...
///
/// `on_jdks!(21, 25; ...)` restricts it to some JDKs. A test whose outcome the kernel, the options or the collector
/// decides, but not the VM, runs on the newest one, and on the oldest one too if it starts and ends profiles.
/// With `concurrent;` (`on_jdks!(concurrent 21, 25; ...)`) a test runs concurrently with others; its checks must not
/// depend on the load. Without it no other test of the program runs a JVM meanwhile, and the test is named
/// `name::alone_on_jdk11`, because `./test` runs these tests one after the other.
#[macro_export]
macro_rules! on_every_jdk {
    (concurrent; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { concurrent 11, 17, 21, 25; $(#[$attribute])* fn $name($jdk) $body }
    };
    ($(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { 11, 17, 21, 25; $(#[$attribute])* fn $name($jdk) $body }
    };
}

/// See [`on_every_jdk`].
#[macro_export]
macro_rules! on_jdks {
    (concurrent $($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { @module on_jdk_concurrently; $($feature),+; $(#[$attribute])* fn $name($jdk) $body }
    };
    ($($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { @module on_jdk_exclusively; $($feature),+; $(#[$attribute])* fn $name($jdk) $body }
    };
    (@module $run:ident; $($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "the parent's imports serve all tests of a file")]
            use super::*;

            fn check($jdk: &$crate::Jdk) $body

            $($crate::on_jdks! { @test $run $feature })+
        }
    };
    (@test on_jdk_concurrently 11) => { #[test] fn jdk11() { $crate::on_jdk_concurrently(11, check); } };
    (@test on_jdk_concurrently 17) => { #[test] fn jdk17() { $crate::on_jdk_concurrently(17, check); } };
    (@test on_jdk_concurrently 21) => { #[test] fn jdk21() { $crate::on_jdk_concurrently(21, check); } };
    (@test on_jdk_concurrently 25) => { #[test] fn jdk25() { $crate::on_jdk_concurrently(25, check); } };
    (@test on_jdk_exclusively 11) => { #[test] fn alone_on_jdk11() { $crate::on_jdk_exclusively(11, check); } };
    (@test on_jdk_exclusively 17) => { #[test] fn alone_on_jdk17() { $crate::on_jdk_exclusively(17, check); } };
    (@test on_jdk_exclusively 21) => { #[test] fn alone_on_jdk21() { $crate::on_jdk_exclusively(21, check); } };
    (@test on_jdk_exclusively 25) => { #[test] fn alone_on_jdk25() { $crate::on_jdk_exclusively(25, check); } };
}
