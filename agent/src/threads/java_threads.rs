//! Java threads: from JVMTI's references to entries of the registry.
//!
//! Problem: an event names a thread by a Java reference; a profile needs its kernel id and the bounds of its stack.
//! Approach: the VM's `JavaThread` has both. A thread's JNI environment lies inside it, at the same offset in all
//! threads. No event announces a new name, so names are read again when a thread or the profile ends, and sometimes by
//! a starting thread ([`JavaThreads::refresh_if_due`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stackwalk::{LiveMemory, Memory, ThreadOffsets};

use super::registry::Registry;
use super::table::JavaThread;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::{Jvmti, ThreadRef};

/// Time between two readings of all names.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);
/// Most threads whose names are read again, at some microseconds each for a starting thread.
const MAX_REFRESHED: usize = 500;
/// Most bytes of a `JavaThread` that are read at once; the words about its stack lie within 48 (JDK 11 to 28).
const MAX_SPAN: usize = 256;
/// Threads that are read and then registered together; two system calls each, some 0.1 ms in all.
const READ_AT_ONCE: usize = 64;

pub struct JavaThreads {
    registry: Arc<Registry>,
    jvmti: Jvmti,
    memory: &'static LiveMemory,
    offsets: ThreadOffsets,
    env_offset: Option<u64>,
    /// When all names were read last.
    refreshed: Mutex<Instant>,
}

/// A `JavaThread` and its stack.
struct Described {
    address: u64,
    base: u64,
    size: u64,
}

impl Described {
    /// Returns it with the present name of the thread.
    fn named(&self, jni: Jni, thread: ThreadRef) -> JavaThread {
        let &Self { address, base, size } = self;
        let name = jni.thread_name(thread).unwrap_or_default();
        JavaThread { address, stack_low: base.saturating_sub(size), stack_high: base, name }
    }
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

    /// Registers the running Java threads. ThreadEnd must be enabled: the entry of a thread that ends earlier would
    /// keep the address of a freed `JavaThread`.
    pub fn register_existing(&self, jni: Jni) {
        for threads in self.jvmti.all_threads().chunks(READ_AT_ONCE) {
            // So that the processor is not taken away during the reads.
            std::thread::yield_now();
            let read = |&thread: &ThreadRef| Some((thread, self.read(jni.java_thread(thread)?)?));
            let found: Vec<_> = threads.iter().filter_map(read).collect();
            for (thread, (tid, described)) in found {
                self.registry.java_found(tid, &described.named(jni, thread));
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
        if let Some((tid, described)) = address.and_then(|address| self.read(address)) {
            self.registry.java_started(tid, &described.named(jni, thread));
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
        // If the lock is taken, another thread does this.
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

    /// Reads the kernel id and the stack of the thread whose `JavaThread` is at `address`.
    fn read(&self, address: u64) -> Option<(i32, Described)> {
        let ThreadOffsets { osthread, stack_base, stack_size, .. } = self.offsets;
        let [os_thread, base, size] = self.words_at(address, [osthread, stack_base, stack_size])?;
        Some((self.tid_of_os_thread(os_thread)?, Described { address, base, size }))
    }

    /// Reads words of a `JavaThread` by one read where they are close together.
    ///
    /// Each read holds the kernel's lock of the address space, which starting threads need, and may lose the processor
    /// meanwhile (Linux 6.18 `mm/gup.c`, `__get_user_pages`).
    fn words_at<const N: usize>(&self, address: u64, offsets: [u32; N]) -> Option<[u64; N]> {
        let first = offsets.into_iter().min()?;
        let mut bytes = [0; MAX_SPAN];
        let place = |offset: u32| (offset - first) as usize..(offset - first) as usize + size_of::<u64>();
        let end = offsets.into_iter().map(|offset| place(offset).end).max()?;
        let Some(span) = bytes.get_mut(..end) else {
            return self.memory.read_words(offsets.map(|offset| address + u64::from(offset))).ok();
        };
        self.memory.read(address + u64::from(first), span).ok()?;
        let mut words = [0; N];
        for (word, offset) in words.iter_mut().zip(offsets) {
            *word = u64::from_ne_bytes(span.get(place(offset))?.try_into().ok()?);
        }
        Some(words)
    }

    fn tid_at(&self, address: u64) -> Option<i32> {
        self.tid_of_os_thread(self.memory.read_u64(address + u64::from(self.offsets.osthread)).ok()?)
    }

    fn tid_of_os_thread(&self, os_thread: u64) -> Option<i32> {
        let tid = self.memory.read_i32(os_thread + u64::from(self.offsets.osthread_thread_id)).ok()?;
        (tid > 0).then_some(tid)
    }
}
