//! Runs Java workloads whose profile is known under the agent, on every supported JDK.
//!
//! Problem: whether a profile is true can only be judged where the truth is known.
//! Approach: each file in `workloads/` burns CPU time in one shape and prints what it did as `truth` lines;
//! this crate compiles them once, runs one under `tickwalk record` (or under the bare agent), and hands back a
//! typed [`Run`] to compare.
//! Invariants: the agent and the binary are only ever started as processes, never linked; assertions are on
//! counts, identities and ratios, never on elapsed time; nothing here waits by the clock.
//!
//! What a test needs: `java-tests/fetch` once (JDKs and compiler), `cargo build` before (agent and binary).
//! Environment: `TICKWALK_JDKS` (folder of JAVA_HOMEs named by version), `TICKWALK_JDK` (names of some of them, or
//! `all`, in place of the pinned four), `TICKWALK_BIN_DIR` (folder with `tickwalk` and `libtickwalk.so`),
//! `TICKWALK_REQUIRE_JDKS=1` (a missing JDK fails instead of skipping).
//!
//! This is test support: what cannot be found or parsed is a panic with the remedy in its text.
#![forbid(unsafe_code)]

pub mod binaries;
pub mod collector;
mod jdk;
mod native_library;
mod numbered;
mod process;
pub mod python;
mod recording;
mod stacks;
mod starvation;
mod summary;
mod tolerance;
mod truth;
mod workload;

pub use jdk::{Jdk, on_jdk, on_jdk_alone, on_jdk_beside};
pub use native_library::native_library;
pub use numbered::NumberedClasses;
pub use process::{Finished, run};
pub use recording::{CARRIER_CLOCK, Run, Workload};
pub use stacks::{MethodWeight, Stack, Stacks};
pub use starvation::Starved;
pub use summary::{CpuTime, Percentiles, Sampling, Summary, ThreadAccount, VirtualThread};
pub use tolerance::{
    INTERVAL_NS, LATE_NS, TICK_NS, binomial_tolerance, stretch_tolerance_ns, turns_tolerance_ns,
};
pub use truth::Truth;
pub use workload::javac;

/// Turns a function of a [`Jdk`] into one test per JDK: `name::jdk11`, `name::jdk17`, ...
///
/// `on_jdks!(21, 25; ...)` restricts it to some of them.
/// With `beside;` (`on_jdks!(beside 21, 25; ...)`) such a test runs beside others: its checks do not depend on who else
/// needs the processors. All others run alone.
#[macro_export]
macro_rules! on_every_jdk {
    (beside; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { beside 11, 17, 21, 25; $(#[$attribute])* fn $name($jdk) $body }
    };
    ($(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { 11, 17, 21, 25; $(#[$attribute])* fn $name($jdk) $body }
    };
}

/// See [`on_every_jdk`].
#[macro_export]
macro_rules! on_jdks {
    (beside $($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { @module on_jdk_beside; $($feature),+; $(#[$attribute])* fn $name($jdk) $body }
    };
    ($($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $crate::on_jdks! { @module on_jdk_alone; $($feature),+; $(#[$attribute])* fn $name($jdk) $body }
    };
    (@module $turn:ident; $($feature:tt),+; $(#[$attribute:meta])* fn $name:ident($jdk:ident) $body:block) => {
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "the parent's imports serve all tests of a file")]
            use super::*;

            fn check($jdk: &$crate::Jdk) $body

            $($crate::on_jdks! { @test $turn $feature })+
        }
    };
    (@test $turn:ident 11) => { #[test] fn jdk11() { $crate::$turn(11, check); } };
    (@test $turn:ident 17) => { #[test] fn jdk17() { $crate::$turn(17, check); } };
    (@test $turn:ident 21) => { #[test] fn jdk21() { $crate::$turn(21, check); } };
    (@test $turn:ident 25) => { #[test] fn jdk25() { $crate::$turn(25, check); } };
}
