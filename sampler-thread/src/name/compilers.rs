//! What compiler threads compile.
//!
//! Problem: a task has its method only while it is compiled, mostly for some milliseconds, and samples wait for longer.
//! Approach: while compiler threads have samples, the sampler looks between two drains at the tasks of these threads. The copy
//! of a sample's stack has the task of its moment; the first look behind the sample tells the method if the thread is at the
//! same task.
//! Invariant: a method was read behind the sample, from the task that the copy has.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use rustc_hash::FxHasher;
use stackwalk::{CompileTask, Memory, Method, StackCopy};

use crate::process::ThreadFacts;
use crate::walk::vm::Vm;

/// Time between two looks.
pub const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Most looks that are kept between two drains.
const MAX_LOOKS: usize = 64;

/// A compiler thread that had a sample.
struct Compiler {
    /// Its `CompilerThread`.
    address: u64,
    /// Its environment, a local variable of the thread; it keeps its place in nearly all compilations.
    environment: u64,
    looks: Vec<Look>,
}

/// What a thread compiled at a moment.
struct Look {
    /// Time stamp before it was read.
    ticks: u64,
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
    is_busy: bool,
}

impl Compilers {
    /// Returns whether it is time to look at them between drains.
    pub fn are_busy(&self) -> bool {
        self.is_busy
    }

    /// Looks at all of them; `ticks` is the present time stamp.
    pub fn look<M: Memory>(&mut self, vm: &Vm<M>, ticks: u64) {
        for Compiler { address, environment, looks } in self.known.values_mut() {
            if looks.len() < MAX_LOOKS {
                let task = vm.hotspot.compile_task(&vm.memory, *address, environment);
                looks.push(Look { ticks, task });
            }
        }
    }

    /// Forgets the looks between this drain, which has ended, and the one before.
    pub fn end_drain(&mut self) {
        self.is_busy = std::mem::take(&mut self.had_sample);
        self.known.values_mut().for_each(|compiler| compiler.looks.clear());
    }

    /// Returns the method that `thread` was compiling at `ticks`, when `stack` was copied.
    ///
    /// The address proves nothing until the method's names have been read.
    pub fn method<M: Memory>(
        &mut self,
        Vm { hotspot, memory }: &Vm<M>,
        thread: &ThreadFacts,
        stack: &StackCopy<'_>,
        ticks: u64,
    ) -> Option<Method> {
        self.had_sample = true;
        if !self.known.contains_key(&thread.id) {
            let is_thread =
                |&address: &u64| hotspot.thread_id(memory, address) == u32::try_from(thread.tid).ok();
            let address = hotspot.java_threads(memory).find(is_thread)?;
            self.known.retain(|_, known| known.address != address);
            self.known.insert(thread.id, Compiler { address, environment: 0, looks: Vec::new() });
        }
        let Compiler { address, environment, looks } = self.known.get_mut(&thread.id)?;
        match looks.iter().find(|look| look.ticks >= ticks) {
            Some(Look { task, .. }) => {
                let task = task.filter(|task| hotspot.copied_task(*environment, stack) == Some(task.address))?;
                Some(task.method)
            }
            None => hotspot.compiled_method(memory, *address, environment, stack),
        }
    }
}
