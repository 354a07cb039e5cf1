//! Settings that are fixed for the whole session.

use std::sync::Arc;
use std::time::Duration;

use queue::SizeRange;

use crate::drain::pace::PaceTuning;
use crate::drain::traces::Traces;
use crate::hooks::Observer;
use crate::name::shown::Shown;
use crate::period::interval::Tuning;
use crate::proof::self_test::{Capabilities, SelfTest};
use crate::proof::unloading::Unloading;
use crate::walk::routines::Routines;

/// Runs the self-test on the sampler thread, and returns its results and what may be shown because of them.
pub type Examine = Box<dyn FnOnce() -> (Capabilities, Vec<SelfTest>) + Send>;

pub struct Settings<M> {
    /// Detector of unloaded classes and freed code.
    pub unloading: Arc<Unloading>,
    /// The routines that the VM has generated.
    pub routines: Arc<Routines>,
    pub examine: Examine,
    /// Most frames of a stack.
    pub max_frames: u32,
    /// Frames among them that are shown.
    pub shown: Shown,
    /// Time after which the profile ends by itself.
    pub duration: Option<Duration>,
    /// CPU time of the process before the profile, which is no part of it: 0 if the profile begins with the JVM.
    pub process_cpu_before_ns: u64,
    /// Sizes that request queues may take.
    pub queue_sizes: SizeRange,
    /// When queues are drained.
    pub pace: PaceTuning,
    /// Options that determine the period of the timers.
    pub tuning: Tuning,
    /// Stack traces from the VM, in place of signals.
    pub traces: Option<Arc<Traces>>,
    pub observer: Option<Box<dyn Observer<M>>>,
}
