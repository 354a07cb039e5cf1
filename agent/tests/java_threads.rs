//! Java threads that run when the agent is attached, and those that start meanwhile and later.
//!
//! The test takes the place of the VM: threads whose environments lie at one distance, and a table of JNI functions.

mod support;

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use jni::sys::{JNIEnv, JNINativeInterface__1_1, jclass, jfieldID, jint, jlong, jobject};
use jvmti_sys::{jthread, jvmtiEnv, jvmtiInterface_1};
use stackwalk::{LiveMemory, ThreadOffsets};
use tickwalk::handler::slots::Shared;
use tickwalk::jvmti::jni_calls::Jni;
use tickwalk::jvmti::{Jvmti, ThreadRef};
use tickwalk::threads::{JavaThread, JavaThreads, Registry};

/// More entries than any version of JNI or JVMTI has.
const FUNCTIONS: usize = 300;

thread_local! {
    /// Look-ups of a `JavaThread` by its `java.lang.Thread`.
    static LOOK_UPS: Cell<u32> = const { Cell::new(0) };
    /// The Java threads that the VM lists.
    static RUNNING: RefCell<Vec<jthread>> = const { RefCell::new(Vec::new()) };
    /// Called whenever the name of a thread is read.
    static WHILE_NAMED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// A `JavaThread`; as a `java.lang.Thread`, it is its own address.
#[repr(C)]
struct VmThread {
    os_thread: *const i32,
    stack_base: u64,
    stack_size: u64,
    env: JNIEnv,
}

impl VmThread {
    fn new(tid: &i32) -> Self {
        Self { os_thread: tid, stack_base: 0, stack_size: 0, env: functions().as_ptr().cast() }
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    fn jni(&self) -> Jni {
        // SAFETY: the environment has a table of functions.
        unsafe { Jni::new(std::ptr::from_ref(&self.env).cast_mut()) }
    }

    fn reference(&self) -> ThreadRef {
        // SAFETY: only the functions of this test use it.
        unsafe { ThreadRef::new(std::ptr::from_ref(self).cast_mut().cast()) }
    }
}

extern "system" fn unexpected() {
    std::process::abort();
}

/// Classes, by their depth below `Object`.
const OBJECT: usize = 1;
const THREAD: usize = 2;
const SUBCLASS: usize = 4;

unsafe extern "system" fn get_object_class(_env: *mut JNIEnv, _thread: jobject) -> jclass {
    std::ptr::without_provenance_mut(SUBCLASS)
}

unsafe extern "system" fn get_superclass(_env: *mut JNIEnv, class: jclass) -> jclass {
    std::ptr::without_provenance_mut(class as usize - OBJECT)
}

unsafe extern "system" fn get_field_id(
    _env: *mut JNIEnv,
    class: jclass,
    _name: *const c_char,
    _signature: *const c_char,
) -> jfieldID {
    assert_eq!(class as usize, THREAD, "a subclass may have a field of the same name");
    std::ptr::dangling_mut::<c_void>().cast()
}

unsafe extern "system" fn get_long_field(_env: *mut JNIEnv, thread: jobject, _field: jfieldID) -> jlong {
    LOOK_UPS.set(LOOK_UPS.get() + 1);
    thread as jlong
}

/// Threads have no names.
unsafe extern "system" fn get_object_field(_env: *mut JNIEnv, _thread: jobject, _field: jfieldID) -> jobject {
    WHILE_NAMED.with_borrow_mut(|act| act.as_mut().map(|act| act()));
    null_mut()
}

unsafe extern "system" fn delete_local_ref(_env: *mut JNIEnv, _reference: jobject) {}

fn functions() -> &'static [usize; FUNCTIONS] {
    let mut table = [unexpected as *const () as usize; FUNCTIONS];
    let functions = [
        (offset_of!(JNINativeInterface__1_1, GetObjectClass), get_object_class as *const ()),
        (offset_of!(JNINativeInterface__1_1, GetSuperclass), get_superclass as *const ()),
        (offset_of!(JNINativeInterface__1_1, GetFieldID), get_field_id as *const ()),
        (offset_of!(JNINativeInterface__1_1, GetLongField), get_long_field as *const ()),
        (offset_of!(JNINativeInterface__1_1, GetObjectField), get_object_field as *const ()),
        (offset_of!(JNINativeInterface__1_1, DeleteLocalRef), delete_local_ref as *const ()),
    ];
    for (offset, function) in functions {
        table[offset / size_of::<usize>()] = function as usize;
    }
    Box::leak(Box::new(table))
}

unsafe extern "C" fn get_all_threads(
    _env: *mut jvmtiEnv,
    count: *mut jint,
    threads: *mut *mut jthread,
) -> jint {
    let running = RUNNING.take().leak();
    // SAFETY: the caller passes a place for it.
    unsafe { count.write(running.len() as jint) };
    // SAFETY: as above.
    unsafe { threads.write(running.as_mut_ptr()) };
    0
}

/// Returns a JVMTI environment that has no other function.
fn jvmti() -> Jvmti {
    let mut table = [0_usize; FUNCTIONS];
    table[offset_of!(jvmtiInterface_1, GetAllThreads) / size_of::<usize>()] =
        get_all_threads as *const () as usize;
    let table: jvmtiEnv = Box::leak(Box::new(table)).as_ptr().cast();
    // SAFETY: a table without a function has zero for it.
    unsafe { Jvmti::new(Box::leak(Box::new(table))) }
}

/// Returns the addresses of `JavaThread`s that handlers see.
fn published(shared: &Shared) -> Vec<u64> {
    let slots = shared.slots.iter().take(16);
    slots.map(|slot| slot.java_thread.load(Ordering::Relaxed)).filter(|&address| address != 0).collect()
}

/// Returns what registers Java threads; `jni` is the environment of the calling thread, which is `attaching` if it
/// is known.
fn java_threads(registry: &Arc<Registry>, jni: Jni, attaching: Option<&VmThread>) -> JavaThreads {
    let offsets = ThreadOffsets {
        osthread: offset_of!(VmThread, os_thread) as u32,
        osthread_thread_id: 0,
        stack_base: offset_of!(VmThread, stack_base) as u32,
        stack_size: offset_of!(VmThread, stack_size) as u32,
        ..ThreadOffsets::default()
    };
    let memory: &LiveMemory = Box::leak(Box::new(LiveMemory::new()));
    let reference = attaching.map(VmThread::reference);
    JavaThreads::new(Arc::clone(registry), jvmti(), memory, offsets, jni, reference)
}

#[test]
fn the_distance_to_the_environment_is_learned_once() {
    let (registry, shared) = support::registry();
    let registry = Arc::new(registry);
    let tid = nix::unistd::gettid().as_raw();
    let threads: Vec<VmThread> = (0..4).map(|_| VmThread::new(&tid)).collect();
    let attach = |thread| java_threads(&registry, threads[0].jni(), thread);
    // Each thread starts and ends on this one.
    let start_all = |java_threads: &JavaThreads| {
        for thread in &threads {
            java_threads.started(thread.jni(), thread.reference());
            assert_eq!(published(shared), [thread.address()]);
            java_threads.ended(thread.jni(), thread.reference());
        }
        LOOK_UPS.take()
    };
    let java_threads = attach(Some(&threads[0]));
    assert_eq!(LOOK_UPS.take(), 1, "for the thread that attaches");
    assert_eq!(start_all(&java_threads), 0);
    assert_eq!(start_all(&attach(None)), 4, "where the distance is unknown");
    registry.stop();
}

#[test]
fn threads_start_while_those_that_run_are_registered() {
    const FOUND: usize = 3;
    let (registry, _) = support::registry();
    let registry = Arc::new(registry);
    support::with_threads(2 * FOUND, |tids| {
        let (found, starting) = tids.split_at(FOUND);
        let found: Vec<VmThread> = found.iter().map(VmThread::new).collect();
        RUNNING.set(found.iter().map(|thread| thread.address() as jthread).collect());
        let (known, at_names) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&registry));
        let (counts, mut starting) = (Arc::clone(&known), starting.to_vec());
        WHILE_NAMED.set(Some(Box::new(move || {
            counts.lock().expect("no panic").push(at_names.threads());
            let thread = JavaThread { address: 1, stack_low: 0, stack_high: 0, name: "new".to_owned() };
            at_names.java_started(starting.pop().expect("one for each"), &thread);
        })));
        java_threads(&registry, found[0].jni(), Some(&found[0])).register_existing(found[0].jni());
        WHILE_NAMED.set(None);
        // The threads before it are registered: the lock was given up after each of them.
        assert_eq!(*known.lock().expect("no panic"), [0, 2, 4]);
        assert_eq!(registry.threads(), 2 * FOUND);
        registry.stop();
    });
}
