//! Java threads: the fields that a signal handler copies, and the list of all threads.
//!
//! Sources: `runtime/{thread,javaThread,osThread,threadSMR}.hpp`, JDK 11 to 25.

use super::HotSpot;
use super::layout::{CompilerLayout, ThreadListLayout};
use super::mounted::MountedOffsets;
use crate::limits::MAX_JAVA_THREADS;
use crate::memory::{Memory, at};

/// Byte offsets of the fields that the signal handler copies, in a `JavaThread` unless stated otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadOffsets {
    /// Thread state, 32 bits.
    pub state: u32,
    /// Newest Java frame's sp, 0 while the thread runs Java.
    pub anchor_sp: u32,
    /// Newest Java frame's pc, may be 0 although sp is not.
    pub anchor_pc: u32,
    /// Newest Java frame's fp.
    pub anchor_fp: u32,
    /// Non-zero while a frame is being deoptimised.
    pub vframe_array_head: u32,
    /// Offset, in the record that this field points at, of the sp of the frame being replaced; its pc is the next word.
    ///
    /// A `vframeArray` begins with its thread, a pointer to the next array (up to JDK 20), and the frame, whose first
    /// members are these (`runtime/vframeArray.hpp`, `runtime/frame.hpp`, JDK 11 to 25; in no table). The walker checks
    /// both words.
    pub deoptimized_sp: u32,
    /// Newest virtual thread entry on this stack; from the tables or, once the VM has started, from its code.
    pub cont_entry: Option<u32>,
    /// Instruction at which a poll or an implicit exception was hit last.
    pub saved_exception_pc: Option<u32>,
    /// `OSThread*`.
    pub osthread: u32,
    /// Kernel thread id, 32 bits, in the `OSThread`.
    pub osthread_thread_id: u32,
    /// Address after the highest stack byte.
    pub stack_base: u32,
    /// Size of the stack in bytes.
    pub stack_size: u32,
    /// Progress of thread exit, 32 bits, `None` if the tables lack it.
    pub terminated: Option<u32>,
    /// Value of `terminated` for a thread that is not exiting.
    pub not_terminated: Option<u32>,
    /// Value of `state` while Java code runs.
    pub in_java: u32,
    /// Thread object: an oop in JDK 11, a handle (pointer to an oop) later.
    pub thread_object: Option<u32>,
    /// Current thread object, a virtual one while it is mounted, as a handle; JDK 21 and later.
    pub vthread: Option<u32>,
    /// Fields for the virtual thread that the thread runs.
    pub mounted: Option<MountedOffsets>,
    /// From a `CompilerThread` to the method that it compiles.
    pub compiler: Option<CompilerOffsets>,
}

/// Offsets from a `CompilerThread` to the method that it compiles; in the tables of every JDK from 11 to 28.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompilerOffsets {
    /// Offset of the environment (`ciEnv`) in the thread, null while it compiles nothing.
    pub env: u32,
    /// Offset of the task in the environment, null until it has one.
    pub task: u32,
    /// Offset of the `Method*` in the task.
    pub method: u32,
}

/// First release whose `vframeArray` has no pointer to the next one.
const FIRST_WITHOUT_NEXT_ARRAY: u32 = 21;

impl HotSpot {
    /// Offsets for the signal handler; usable as soon as the tables have been read.
    #[must_use]
    pub fn thread_offsets(&self) -> ThreadOffsets {
        let thread = &self.layout.thread;
        let frame = &self.layout.frame;
        ThreadOffsets {
            state: thread.state,
            anchor_sp: thread.anchor.wrapping_add(frame.anchor_sp),
            anchor_pc: thread.anchor.wrapping_add(frame.anchor_pc),
            anchor_fp: thread.anchor.wrapping_add(frame.anchor_fp),
            vframe_array_head: thread.vframe_array_head,
            deoptimized_sp: if self.jdk_major() < FIRST_WITHOUT_NEXT_ARRAY { 16 } else { 8 },
            cont_entry: thread.cont_entry,
            saved_exception_pc: thread.saved_exception_pc,
            osthread: thread.osthread,
            osthread_thread_id: thread.thread_id,
            stack_base: thread.stack_base,
            stack_size: thread.stack_size,
            terminated: thread.terminated,
            not_terminated: thread.not_terminated,
            in_java: thread.in_java,
            thread_object: thread.thread_object,
            vthread: thread.vthread,
            mounted: None,
            compiler: thread.compiler.map(|CompilerLayout { env, task, method }| CompilerOffsets {
                env,
                task,
                method,
            }),
        }
    }

    /// Addresses of all `JavaThread`s, hidden ones (compilers, service threads) included.
    ///
    /// The list changes while it is read: an address may be stale, so every read from it has to be checked.
    pub fn java_threads<'m, M: Memory + ?Sized>(&self, memory: &'m M) -> JavaThreads<'m, M> {
        let (list, position) = match self.layout.thread.list {
            ThreadListLayout::Chain { first, next } => {
                (List::Chain { next }, memory.read_u64(first).unwrap_or(0))
            }
            ThreadListLayout::List { list, length, array } => {
                let object = memory.read_u64(list).unwrap_or(0);
                let field_at = |offset: u32| at(object, offset);
                let count = memory.read_u32(field_at(length)).unwrap_or(0);
                (List::Array { count }, memory.read_u64(field_at(array)).unwrap_or(0))
            }
        };
        JavaThreads { memory, list, position, visited: 0 }
    }

    /// Kernel thread id of a `JavaThread`, `None` while it has none.
    pub fn thread_id<M: Memory + ?Sized>(&self, memory: &M, thread: u64) -> Option<u32> {
        let layout = &self.layout.thread;
        let osthread = memory.read_u64(at(thread, layout.osthread)).ok()?;
        if osthread == 0 {
            return None;
        }
        memory.read_u32(at(osthread, layout.thread_id)).ok().filter(|&id| id != 0)
    }
}

#[derive(Clone, Copy, Debug)]
enum List {
    Chain { next: u32 },
    Array { count: u32 },
}

/// Iterator over `JavaThread` addresses; see [`HotSpot::java_threads`].
#[derive(Debug)]
pub struct JavaThreads<'m, M: ?Sized> {
    memory: &'m M,
    list: List,
    position: u64,
    visited: u32,
}

impl<M: Memory + ?Sized> Iterator for JavaThreads<'_, M> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.visited >= MAX_JAVA_THREADS || self.position == 0 {
            return None;
        }
        let thread = match self.list {
            List::Chain { next } => {
                let thread = self.position;
                self.position = self.memory.read_u64(at(thread, next)).unwrap_or(0);
                thread
            }
            List::Array { count } if self.visited < count => {
                let at = self.position.wrapping_add(u64::from(self.visited) * 8);
                self.memory.read_u64(at).ok()?
            }
            List::Array { .. } => return None,
        };
        self.visited += 1;
        Some(thread).filter(|&thread| thread != 0)
    }
}
