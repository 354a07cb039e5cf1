//! Makes samples of the VM's stack traces (`mode=jvmti`).
//!
//! Invariant: every trace becomes a sample, or is counted as failed.

use stackwalk::{Memory, Stop};

use super::samples::NO_THREAD;
use super::{Worker, reading};
use crate::drain::traces::Trace;
use crate::process::Process;
use crate::send::batch::{FLAG_BIASED, FLAG_INCOMPLETE, Sample};

/// Stop reason of threads that run no Java code at a safepoint, although they are Java threads.
const NO_JAVA_FRAMES: &str = "no_java_frames";

impl<P: Process, M: Memory> Worker<P, M> {
    /// Makes samples of all traces that wait.
    pub(super) fn sample_traces(&mut self) {
        let Some(traces) = &self.traces else { return };
        let traces = traces.take();
        self.clock.read(reading(&self.unloading));
        for trace in traces {
            self.sample_trace(&trace);
        }
    }

    fn sample_trace(&mut self, trace: &Trace) {
        self.accounts.open_slot(trace.slot, &*self.process, &mut self.namer.names.dictionaries);
        self.stats.requests += 1;
        let (stop, is_complete) = match trace {
            Trace { is_cut: true, .. } => (Stop::DepthLimit.name(), false),
            Trace { frames, .. } if frames.is_empty() => (NO_JAVA_FRAMES, false),
            _ => (Stop::EndOfStack.name(), true),
        };
        let (stack, unloaded) = self.namer.name_trace(&self.vm, &mut self.walker, trace, stop);
        self.stats.count_stop(stop);
        self.stats.count_unloaded(unloaded);
        let account = self.accounts.get_mut(trace.slot).filter(|account| account.facts.id == trace.thread);
        let Some(account) = account else {
            self.stats.count_failed(NO_THREAD);
            return;
        };
        // The stack is that of the next safepoint.
        let is_biased = !trace.frames.is_empty();
        account.add_sample(trace.cpu_ns, is_biased);
        self.stats.samples += 1;
        self.stats.biased += u64::from(is_biased);
        match is_complete {
            true => self.stats.resolved += 1,
            false => self.stats.count_failed(stop),
        }
        let incomplete = if is_complete { 0 } else { FLAG_INCOMPLETE };
        let flags = incomplete | if is_biased { FLAG_BIASED } else { 0 };
        let time_ns = self.clock.nanos(trace.ticks);
        let (thread, cpu_ns) = (trace.thread, trace.cpu_ns);
        self.send(Sample { time_ns, thread, stack, cpu_ns, flags, count: 1 });
    }
}
