//! Finds the method that a compiler thread was compiling at the time of a sample.
//!
//! Problem: a task has its method only while it is compiled, mostly for some milliseconds; then it is used for another method.
//! A sample waits for longer, and its copy has the address of the task at most.
//! Approach: while compiler threads have samples, the sampler looks at what these threads compile, in drains and between them. A
//! sample between two looks that find the same compilation is of that one.
//! Invariant: a compilation that began after a sample or ended before it is not its label.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use rustc_hash::FxHasher;
use stackwalk::{CompileTask, Memory, Method};

use crate::process::ThreadFacts;
use crate::walk::vm::Vm;

/// Time between two looks.
pub const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// A compiler thread that had a sample.
struct Compiler {
    /// Its `CompilerThread`.
    address: u64,
    /// See [`stackwalk::HotSpot::compile_task`].
    environment: u64,
    /// The last look of the last drain, and those behind it.
    looks: Vec<Look>,
}

/// A reading of a thread's task.
#[derive(Clone, Copy)]
struct Look {
    /// Time stamps before and after it.
    during: (u64, u64),
    /// `None` if it compiled nothing.
    task: Option<CompileTask>,
}

/// The compiler threads that had samples, by the id of the thread.
#[derive(Default)]
pub struct Compilers {
    known: HashMap<u32, Compiler, BuildHasherDefault<FxHasher>>,
    /// True if one of them has had a sample since the last drain began.
    had_sample: bool,
    /// True if one had a sample in the drain before.
    are_busy: bool,
}

impl Compilers {
    /// Returns whether they work, so that it is worth while to look at them.
    pub fn are_busy(&self) -> bool {
        self.are_busy
    }

    /// Looks at all of them; `now` returns the present time stamp.
    pub fn look<M: Memory>(&mut self, vm: &Vm<M>, now: impl Fn() -> u64) {
        for Compiler { address, environment, looks } in self.known.values_mut() {
            let before = now();
            let task = vm.hotspot.compile_task(&vm.memory, *address, environment);
            looks.push(Look { during: (before, now()), task });
        }
    }

    /// Forgets what no later sample needs. To be called after a drain.
    pub fn end_drain(&mut self) {
        self.are_busy = std::mem::take(&mut self.had_sample);
        for Compiler { looks, .. } in self.known.values_mut() {
            looks.drain(..looks.len().saturating_sub(1));
        }
    }

    /// Returns the method that `thread` was compiling at `ticks`, if that is certain.
    ///
    /// The address proves nothing until the method's names have been read.
    pub fn method<M: Memory>(&mut self, vm: &Vm<M>, thread: &ThreadFacts, ticks: u64) -> Option<Method> {
        self.had_sample = true;
        if !self.known.contains_key(&thread.id) {
            let Vm { hotspot, memory } = vm;
            let is_thread =
                |&address: &u64| hotspot.thread_id(memory, address) == u32::try_from(thread.tid).ok();
            let address = hotspot.java_threads(memory).find(is_thread)?;
            self.known.retain(|_, known| known.address != address);
            self.known.insert(thread.id, Compiler { address, environment: 0, looks: Vec::new() });
        }
        between(&self.known.get(&thread.id)?.looks, ticks)
    }
}

/// Returns the method of the compilation that went on at `ticks`.
fn between(looks: &[Look], ticks: u64) -> Option<Method> {
    let behind = looks.iter().position(|look| look.during.0 >= ticks)?;
    let (before, behind) = (looks.get(behind.checked_sub(1)?)?, looks.get(behind)?);
    let (first, second) = (before.task?, behind.task?);
    (before.during.1 <= ticks && first.id == second.id).then_some(first.method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_between_two_looks_at_one_compilation_is_of_that_one() {
        let look = |at, id: u32| Look {
            during: (at, at + 2),
            task: (id != 0).then_some(CompileTask { id, method: Method(0x1000 + u64::from(id)) }),
        };
        let looks = [look(10, 1), look(20, 1), look(30, 2), look(40, 0), look(50, 2), look(60, 2)];
        for (ticks, id) in
            [(9, 0), (11, 0), (12, 1), (20, 1), (21, 0), (25, 0), (35, 0), (45, 0), (55, 2), (61, 0)]
        {
            let expected = (id != 0).then_some(Method(0x1000 + id));
            assert_eq!(between(&looks, ticks), expected, "{ticks}");
        }
        assert_eq!(between(&[], 5), None);
    }
}
