//! Java threads, from JVMTI's references to entries of the registry.
//!
//! Problem: an event names a thread by a Java reference; a profile needs its kernel id and the bounds of its stack.
//! Approach: the VM's `JavaThread` has both. A thread's JNI environment lies inside its `JavaThread`, at a distance that is
//! the same for all threads of a VM.
//! No event announces a new name: names are read again when a thread ends, when a profile ends, and now and then by a
//! thread that starts ([`JavaThreads::refresh_if_due`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stackwalk::{LiveMemory, Memory, ThreadOffsets};

use super::registry::Registry;
use super::table::JavaThread;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{Jvmti, ThreadRef};
use crate::scheduling::GivingWay;

/// Time between two readings of all names.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);
/// Most threads whose names are read again; each takes some microseconds of a thread that starts.
const MAX_REFRESHED: usize = 500;

/// Registers Java threads.
pub struct JavaThreads {
    registry: Arc<Registry>,
    jvmti: Jvmti,
    memory: &'static LiveMemory,
    offsets: ThreadOffsets,
    env_offset: Option<u64>,
    /// When all names were read last.
    refreshed: Mutex<Instant>,
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
        let refreshed = Mutex::new(Instant::now());
        Self { registry, jvmti, memory, offsets, env_offset, refreshed }
    }

    /// Address of a thread's JNI environment minus that of its `JavaThread`, if it is known.
    pub fn env_offset(&self) -> Option<u64> {
        self.env_offset
    }

    /// Registers the Java threads that run already. Call it once ThreadEnd is enabled: the entry of a thread that ends
    /// earlier would keep the address of a freed `JavaThread`.
    pub fn register_existing(&self, jni: Jni) {
        let mut giving_way = GivingWay::begin();
        for thread in self.jvmti.all_threads() {
            giving_way.now_and_then();
            if let Some(address) = jni.java_thread(thread) {
                self.register(jni, address, thread, Registry::java_found);
            }
        }
        self.registry.java_threads_registered();
    }

    /// Registers the calling Java thread, which has started.
    pub fn started(&self, jni: Jni, thread: ThreadRef) {
        let address = match self.env_offset {
            Some(offset) => Some(jni.address().wrapping_sub(offset)).filter(|&address| address != 0),
            None => jni.java_thread(thread),
        };
        if let Some(address) = address {
            self.register(jni, address, thread, Registry::java_started);
        }
    }

    /// Unregisters the calling Java thread; returns its slot if its queue holds requests.
    pub fn ended(&self, jni: Jni, thread: ThreadRef) -> Option<u32> {
        self.registry.java_ended(nix::unistd::gettid().as_raw(), jni.thread_name(thread).as_deref())
    }

    /// Returns the kernel id of a thread that is alive.
    pub fn tid_of(&self, jni: Jni, thread: ThreadRef) -> Option<i32> {
        self.tid_at(jni.java_thread(thread)?)
    }

    /// Reads the names of all threads again, unless there are many or that was done a short time ago.
    pub fn refresh_if_due(&self, jni: Jni) {
        // A thread that finds the lock taken leaves this to the other one.
        let Some(mut refreshed) = self.refreshed.try_lock() else { return };
        if refreshed.elapsed() >= REFRESH_PERIOD {
            *refreshed = Instant::now();
            drop(refreshed);
            self.refresh(jni);
        }
    }

    /// Reads the names of all threads again, unless there are many.
    pub fn refresh(&self, jni: Jni) {
        if self.registry.threads() > MAX_REFRESHED {
            return;
        }
        jni.in_frame(4 * MAX_REFRESHED, || {
            for thread in self.jvmti.all_threads() {
                let tid = jni.java_thread(thread).and_then(|address| self.tid_at(address));
                if let (Some(tid), Some(name)) = (tid, jni.thread_name(thread)) {
                    self.registry.rename(tid, &name);
                }
            }
        });
    }

    fn register(&self, jni: Jni, address: u64, thread: ThreadRef, register: fn(&Registry, i32, &JavaThread)) {
        let Some(tid) = self.tid_at(address) else { return };
        let word = |offset: u32| self.memory.read_u64(address + u64::from(offset)).unwrap_or(0);
        let (base, size) = (word(self.offsets.stack_base), word(self.offsets.stack_size));
        let name = jni.thread_name(thread).unwrap_or_default();
        let (stack_low, stack_high) = (base.saturating_sub(size), base);
        register(&self.registry, tid, &JavaThread { address, stack_low, stack_high, name });
    }

    fn tid_at(&self, address: u64) -> Option<i32> {
        let os_thread = self.memory.read_u64(address + u64::from(self.offsets.osthread)).ok()?;
        let tid = self.memory.read_i32(os_thread + u64::from(self.offsets.osthread_thread_id)).ok()?;
        (tid > 0).then_some(tid)
    }
}
