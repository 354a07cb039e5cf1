//! Shares of a profile by what runs: Java code, the JIT compiler, the garbage collector, native code, or the JVM.
//!
//! A thread of the JIT compiler or the garbage collector decides for all its samples. In other threads the newest frame
//! decides: a stub runs on behalf of Java code, and a function of libjvm, such as class loading, is the JVM's.

use proto::v1::{FrameKind, ThreadKind};
use serde::Serialize;

use crate::query::process::ProcessProfile;
use crate::query::selection::{JAVA, NATIVE};
use crate::text::quantity::{percent_of, total};

/// CPU time by what runs, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kinds {
    pub java: u64,
    pub jit: u64,
    pub gc: u64,
    pub native: u64,
    pub jvm: u64,
    pub unknown: u64,
}

impl Kinds {
    /// Adds up the selected samples of `profile`.
    pub fn of(profile: &ProcessProfile) -> Self {
        let mut kinds = Kinds::default();
        for sample in profile.samples() {
            let thread =
                profile.thread(sample.thread).map_or(ThreadKind::Unspecified, |thread| thread.kind());
            let sum = kinds.place(thread, profile.dictionary().newest_kind(sample.stack));
            *sum = sum.saturating_add(sample.sum().cpu_ns);
        }
        kinds
    }

    fn place(&mut self, thread: ThreadKind, frame: FrameKind) -> &mut u64 {
        match (thread, frame) {
            (ThreadKind::Compiler, _) => &mut self.jit,
            (ThreadKind::Gc, _) => &mut self.gc,
            (ThreadKind::Vm, _) | (_, FrameKind::Vm) => &mut self.jvm,
            (_, frame) if JAVA.contains(&frame) => &mut self.java,
            (_, frame) if NATIVE.contains(&frame) => &mut self.native,
            _ => &mut self.unknown,
        }
    }

    /// Returns the shares in one line, the largest first, such as `Java 41.0 %, JIT compiler 54.0 %`; empty without
    /// samples.
    pub fn sentence(&self) -> String {
        let mut parts = [
            (self.java, "Java"),
            (self.jit, "JIT compiler"),
            (self.gc, "GC"),
            (self.native, "native code"),
            (self.jvm, "JVM"),
            (self.unknown, "unknown"),
        ];
        let whole = total(parts.iter().map(|&(ns, _)| ns));
        parts.sort_by_key(|&(ns, _)| std::cmp::Reverse(ns));
        let parts = parts.iter().filter(|&&(ns, _)| ns > 0);
        parts.map(|&(ns, name)| format!("{name} {}", percent_of(ns, whole))).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_jvm_decide_and_frames_of_the_others() {
        let mut kinds = Kinds::default();
        for (thread, frame, ns) in [
            (ThreadKind::Compiler, FrameKind::Native, 50),
            (ThreadKind::Gc, FrameKind::Vm, 4),
            (ThreadKind::Java, FrameKind::C2, 20),
            (ThreadKind::Virtual, FrameKind::Stub, 10),
            (ThreadKind::Java, FrameKind::Vm, 7),
            (ThreadKind::Java, FrameKind::Native, 5),
            (ThreadKind::Java, FrameKind::Marker, 4),
        ] {
            *kinds.place(thread, frame) += ns;
        }
        let expected = Kinds { java: 30, jit: 50, gc: 4, native: 5, jvm: 7, unknown: 4 };
        assert_eq!(kinds, expected);
        let sentence =
            "JIT compiler 50.0 %, Java 30.0 %, JVM 7.0 %, native code 5.0 %, GC 4.0 %, unknown 4.0 %";
        assert_eq!(kinds.sentence(), sentence);
        assert_eq!(Kinds::default().sentence(), "");
    }
}
