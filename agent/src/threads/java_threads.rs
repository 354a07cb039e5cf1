//! Java threads, from JVMTI's references to entries of the registry.
//!
//! Problem: an event names a thread by a Java reference; a profile needs its kernel id and the bounds of its stack.
//! Approach: the VM's `JavaThread` has both. A thread's JNI environment lies inside its `JavaThread`, at a distance that is
//! the same for all threads of a VM.

use std::sync::Arc;

use stackwalk::{LiveMemory, Memory, ThreadOffsets};

use super::registry::Registry;
use super::table::JavaThread;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{Jvmti, ThreadRef};

/// Registers Java threads.
pub struct JavaThreads {
    registry: Arc<Registry>,
    jvmti: Jvmti,
    memory: &'static LiveMemory,
    offsets: ThreadOffsets,
    env_offset: Option<u64>,
}

impl JavaThreads {
    /// `thread` is the calling thread, whose JNI environment is `jni`, if it is known.
    pub fn new(
        registry: Arc<Registry>,
        jvmti: Jvmti,
        memory: &'static LiveMemory,
        offsets: ThreadOffsets,
        jni: Jni,
        thread: Option<ThreadRef>,
    ) -> Self {
        let own_address = thread.and_then(|thread| jni.java_thread(thread));
        let env_offset = own_address.map(|address| jni.address().wrapping_sub(address));
        Self { registry, jvmti, memory, offsets, env_offset }
    }

    /// Address of a thread's JNI environment minus that of its `JavaThread`, if it is known.
    pub fn env_offset(&self) -> Option<u64> {
        self.env_offset
    }

    /// Registers the Java threads that run already. Call it once ThreadEnd is enabled: the entry of a thread that ends
    /// earlier would keep the address of a freed `JavaThread`.
    pub fn register_existing(&self, jni: Jni) {
        for thread in self.jvmti.all_threads() {
            if let Some(address) = jni.java_thread(thread) {
                self.register(address, thread, Registry::java_found);
            }
        }
    }

    /// Registers the calling Java thread, which has started.
    pub fn started(&self, jni: Jni, thread: ThreadRef) {
        let address = match self.env_offset {
            Some(offset) => Some(jni.address().wrapping_sub(offset)).filter(|&address| address != 0),
            None => jni.java_thread(thread),
        };
        if let Some(address) = address {
            self.register(address, thread, Registry::java_started);
        }
    }

    /// Unregisters the calling Java thread; returns its slot if its queue holds requests.
    pub fn ended(&self) -> Option<u32> {
        self.registry.java_ended(nix::unistd::gettid().as_raw())
    }

    fn register(&self, address: u64, thread: ThreadRef, register: fn(&Registry, i32, &JavaThread)) {
        let Some(tid) = self.tid_of(address) else { return };
        let word = |offset: u32| self.memory.read_u64(address + u64::from(offset)).unwrap_or(0);
        let (base, size) = (word(self.offsets.stack_base), word(self.offsets.stack_size));
        let name = self.jvmti.thread_name(thread).unwrap_or_default();
        let (stack_low, stack_high) = (base.saturating_sub(size), base);
        register(&self.registry, tid, &JavaThread { address, stack_low, stack_high, name });
    }

    fn tid_of(&self, address: u64) -> Option<i32> {
        let os_thread = self.memory.read_u64(address + u64::from(self.offsets.osthread)).ok()?;
        let tid = self.memory.read_i32(os_thread + u64::from(self.offsets.osthread_thread_id)).ok()?;
        (tid > 0).then_some(tid)
    }
}
