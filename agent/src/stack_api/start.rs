//! Prepares the API, publishes it, and lists libraries that the program loads later.
//!
//! Problem: clients that are loaded after this library must find its functions, and a walk must not load anything.
//! Approach: Agent_OnLoad makes the library's symbols global; VMInit reads what only a started VM has, and publishes.
//! When a native method is bound or a thread starts after the dynamic linker has loaded or unloaded something,
//! libraries are listed again, so a library is listed before its first native method runs.
//! Invariants: a replaced list is freed only after every memo was seen free. Everything else lives as long as the
//! process. After any error the program runs, and the functions report that the API is not ready.
//! Sources: JVMTI 1.2 (NativeMethodBind, ThreadStart), dlopen(3) (RTLD_NOLOAD), dl_iterate_phdr(3).

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use jni::sys::{jmethodID, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;
use sampler_thread::native::in_handler::LibraryTables;
use stackwalk::{HotSpot, LiveMemory};

use super::api::{self, Api};
use super::memos::{Memo, Memos};
use super::queue_drain;
use super::threads::Threads;
use crate::guest::log;
use crate::handler::own_stack;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::vm::Vm;
use crate::jvmti::{Jvmti, ThreadRef, guard, symbols, vm_memory};
use crate::profile::Refusal;
use crate::vm::{tables, thread_layout};

/// Bit of `can_generate_native_method_bind_events` in the first word of capabilities (`jvmti.h`).
const NATIVE_METHOD_BIND_EVENTS: u32 = 1 << 30;

/// Concurrent walks for each processor: handlers interrupt each other, on other threads and for other signals.
const MEMOS_PER_PROCESSOR: usize = 4;
/// Least and most memos; each takes 4 MiB of addresses and the memory that it uses.
const MEMOS: std::ops::RangeInclusive<usize> = 16..=128;
/// Sets of four jmethodIDs in a memo, 128 KiB: Spark SQL has some 4,000 methods in its stacks.
const ID_SETS: usize = 2048;

/// Made by Agent_OnLoad for VMInit.
struct Prepared {
    vm: Vm,
    jvmti: Jvmti,
    hotspot: HotSpot,
    memory: &'static LiveMemory,
}

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// Prepares the API in a VM that starts, or makes it ready in a running VM. Only the first call has an effect.
///
/// # Errors
/// [`Refusal`].
pub fn open(vm: Vm, is_attached: bool) -> Result<(), Refusal> {
    let mut prepared = PREPARED.lock();
    if prepared.is_some() || api::api().is_some() {
        return Ok(());
    }
    let jvmti = vm.separate_jvmti()?;
    let unsupported = |reason| Refusal::unsupported(&jvmti, reason);
    let library = vm.library().ok_or_else(|| unsupported("its library was not found".to_owned()))?;
    let memory = vm_memory::of_library(&library);
    let hotspot = tables::layouts(Some(&library), memory).map_err(|error| unsupported(error.to_string()))?;
    make_symbols_global();
    let capabilities =
        jvmtiCapabilities { _bindgen_bitfield_1_: NATIVE_METHOD_BIND_EVENTS, ..jvmtiCapabilities::default() };
    if let Err(error) = jvmti.add_capabilities(&capabilities) {
        tracing::info!("libraries are listed only when threads start: {error}");
    }
    jvmti.set_callbacks(&jvmtiEventCallbacks {
        VMInit: Some(vm_init),
        ThreadStart: Some(thread_start),
        NativeMethodBind: Some(native_method_bind),
        ThreadEnd: Some(thread_end),
        VMDeath: Some(vm_death),
        ..jvmtiEventCallbacks::default()
    })?;
    *prepared = Some(Prepared { vm, jvmti, hotspot, memory });
    drop(prepared);
    if is_attached {
        return start(vm.jni()?, jvmti.current_thread());
    }
    Ok(jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)?)
}

/// Makes the exported functions visible to libraries that are loaded later, and to `dlsym(RTLD_DEFAULT, ...)`.
fn make_symbols_global() {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let own = make_symbols_global as *const c_void;
    // SAFETY: `info` is writable; any address may be passed.
    if unsafe { libc::dladdr(own, info.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: zeroed, and filled by the call.
    let info = unsafe { info.assume_init() };
    let again = libc::RTLD_NOLOAD | libc::RTLD_GLOBAL | libc::RTLD_NOW;
    // SAFETY: the NUL-terminated name of a loaded file, which gets one more reference.
    if unsafe { libc::dlopen(info.dli_fname, again) }.is_null() {
        log::print("the functions of the stack-walk API are not global: clients must link libtickwalk.so");
    }
}

/// Publishes the API in an initialised VM; `thread` is the calling thread.
fn start(jni: Jni, thread: Option<ThreadRef>) -> Result<(), Refusal> {
    let Some(Prepared { vm, jvmti, mut hotspot, memory }) = PREPARED.lock().take() else { return Ok(()) };
    let unsupported = |reason: String| Refusal::unsupported(&jvmti, reason);
    vm_memory::start(&mut hotspot, memory).map_err(|error| unsupported(error.to_string()))?;
    let thread = thread.and_then(|thread| jni.java_thread(thread));
    let thread = thread.ok_or_else(|| unsupported("the calling thread has no JavaThread".to_owned()))?;
    vm_memory::add_archive(memory, &hotspot);
    let offsets = hotspot.thread_offsets();
    let sp = std::ptr::from_ref(&thread) as u64;
    if let Some(field) = thread_layout::wrong_field(memory, thread, sp, &offsets) {
        return Err(unsupported(format!("unknown layout of JavaThread: {field}")));
    }
    let threads = Threads::find(memory, thread, jni.address(), own_stack::find());
    let threads =
        threads.ok_or_else(|| unsupported("the VM's key of the current thread was not found".to_owned()))?;
    let libraries = AtomicPtr::new(Box::into_raw(Box::new(LibraryTables::read(memory, 1))));
    LOADED.store(symbols::loads().unwrap_or(0), Ordering::Relaxed);
    let stopping_collector = hotspot.stopping_collector(memory);
    let memos = Memos(memos());
    let api = Api { vm, jvmti, hotspot, memory, offsets, threads, memos, stopping_collector, libraries };
    api::publish(Box::leak(Box::new(api)));
    for event in [jvmtiEvent::JVMTI_EVENT_THREAD_START, jvmtiEvent::JVMTI_EVENT_NATIVE_METHOD_BIND] {
        if let Err(error) = jvmti.enable(event) {
            tracing::info!("libraries that are loaded later may be missing: {error}");
        }
    }
    Ok(())
}

fn memos() -> &'static [Memo] {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let count = (processors * MEMOS_PER_PROCESSOR).clamp(*MEMOS.start(), *MEMOS.end());
    let memo = |_| Memo::new(Box::leak(vec![[0; 8]; ID_SETS].into_boxed_slice()));
    Box::leak((0..count).map(memo).collect())
}

// ---------------------------------------------------------------- libraries that are loaded later

/// The linker's number of loads and unloads when the current list was made. Relaxed: a hint.
static LOADED: AtomicU64 = AtomicU64::new(0);

static REPLACED: Mutex<Replaced> = Mutex::new(Replaced { lists: Vec::new(), version: 1 });

struct Replaced {
    lists: Vec<Retired>,
    version: u64,
}

struct Retired {
    list: *mut LibraryTables,
    /// For each memo, whether it has not been seen free since.
    pending: Vec<bool>,
}

// SAFETY: whoever has the record owns the list.
unsafe impl Send for Retired {}

/// Lists libraries again if the dynamic linker has loaded or unloaded something.
fn follow_libraries() {
    let Some(api) = api::api() else { return };
    let loaded = symbols::loads().unwrap_or(0);
    if LOADED.load(Ordering::Relaxed) == loaded {
        return;
    }
    let Some(mut replaced) = REPLACED.try_lock() else { return };
    LOADED.store(loaded, Ordering::Relaxed);
    replaced.version += 1;
    let list = Box::new(LibraryTables::read(api.memory, replaced.version));
    let old = api.libraries.swap(Box::into_raw(list), Ordering::SeqCst);
    replaced.lists.push(Retired { list: old, pending: vec![true; api.memos.0.len()] });
    replaced.lists.retain_mut(|retired| {
        for (pending, is_free) in retired.pending.iter_mut().zip(api.memos.free()) {
            *pending &= !is_free;
        }
        let is_in_use = retired.pending.contains(&true);
        if !is_in_use {
            // SAFETY: made by `Box::into_raw`. Walks that begin now see a later list, and all earlier ones have ended.
            drop(unsafe { Box::from_raw(retired.list) });
        }
        is_in_use
    });
}

// ---------------------------------------------------------------- events

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: the VM passes a reference to the calling thread.
    let thread = unsafe { ThreadRef::new(thread) };
    guard::callback(|| {
        if let Err(error) = start(jni, Some(thread)) {
            log::print(&format!("{error}; the stack-walk API is not available"));
        }
    });
}

unsafe extern "C" fn thread_start<Env>(_jvmti: *mut jvmtiEnv, _env: *mut Env, _thread: jobject) {
    guard::callback(follow_libraries);
}

unsafe extern "C" fn thread_end<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, _thread: jobject) {
    guard::callback(|| {
        if let Some(api) = api::api() {
            queue_drain::thread_ends(api.threads.of_environment(env as u64));
        }
    });
}

unsafe extern "C" fn vm_death<Env>(_jvmti: *mut jvmtiEnv, _env: *mut Env) {
    guard::callback(queue_drain::drain_now);
}

unsafe extern "C" fn native_method_bind<Env>(
    _jvmti: *mut jvmtiEnv,
    _env: *mut Env,
    _thread: jobject,
    _method: jmethodID,
    _address: *mut c_void,
    _new_address: *mut *mut c_void,
) {
    guard::callback(follow_libraries);
}
