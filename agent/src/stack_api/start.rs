//! Prepares the API and publishes it, and follows the libraries that the program loads.
//!
//! Problem: a client that is loaded after this library must find its functions, and a walk must not load anything.
//! Approach: Agent_OnLoad makes the library's symbols global; VMInit reads what only a started VM has, and publishes. The list
//! of libraries is made again when a native method is bound or a thread starts and the dynamic linker has loaded or unloaded
//! something: a library that Java code calls is then listed before its first method runs.
//! Invariants: a list that was replaced is freed only once every memo was seen free after the replacement. Everything else
//! lives as long as the process. After every error the program runs, and the functions return that the API is not ready.
//! Sources: JVMTI 1.2 (NativeMethodBind, ThreadStart), dlopen(3) (RTLD_NOLOAD), dl_iterate_phdr(3).

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use jni::sys::{jmethodID, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;
use sampler_thread::native::in_handler::LibraryTables;
use sampler_thread::native::maps;
use stackwalk::{HotSpot, LiveMemory, Memory as _};

use super::api::{self, Api};
use super::memos::{Memo, Memos};
use super::queue_drain;
use super::threads::Threads;
use crate::guest::log;
use crate::handler::own_stack;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::vm::Vm;
use crate::jvmti::{Jvmti, ThreadRef, flags, guard, symbols, vm_memory};
use crate::profile::Refusal;
use crate::vm::{tables, thread_layout};

/// Bit of `can_generate_native_method_bind_events` in the first word of capabilities (`jvmti.h`).
const NATIVE_METHOD_BIND_EVENTS: u32 = 1 << 30;

/// Walks at a time for each processor: handlers are interrupted by other threads' handlers and by other signals.
const MEMOS_PER_PROCESSOR: usize = 4;
/// Least and most memos; one takes 4 MiB of addresses and the memory that it uses.
const MEMOS: std::ops::RangeInclusive<usize> = 16..=128;
/// Sets of four jmethodIDs that a memo keeps, 128 KiB: Spark SQL has some 4,000 methods in its stacks.
const ID_SETS: usize = 2048;

/// What Agent_OnLoad has made for VMInit.
struct Prepared {
    jvmti: Jvmti,
    hotspot: HotSpot,
    memory: &'static LiveMemory,
}

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// Prepares the API in a VM that starts, or makes it ready in a VM that runs. Only the first call does anything.
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
        tracing::info!("libraries are listed when threads start only: {error}");
    }
    jvmti.set_callbacks(&event_callbacks())?;
    *prepared = Some(Prepared { jvmti, hotspot, memory });
    drop(prepared);
    if is_attached {
        let thread = jvmti.current_thread();
        return start(vm.jni()?, thread);
    }
    Ok(jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)?)
}

fn event_callbacks() -> jvmtiEventCallbacks {
    jvmtiEventCallbacks {
        VMInit: Some(vm_init),
        ThreadStart: Some(thread_start),
        NativeMethodBind: Some(native_method_bind),
        ThreadEnd: Some(thread_end),
        VMDeath: Some(vm_death),
        ..jvmtiEventCallbacks::default()
    }
}

/// Prepares the API in a process that preloads the library, on a thread of the VM in any state; does nothing while the VM is
/// not ready. No function of the VM is called.
///
/// # Errors
/// Why the VM is not supported.
pub fn open_preloaded(vm: Vm, jni: Jni) -> Result<(), String> {
    let Some(prepared) = PREPARED.try_lock() else { return Ok(()) };
    if prepared.is_some() || api::api().is_some() {
        return Ok(());
    }
    let library = vm.library().ok_or("the VM's library was not found")?;
    let memory = vm_memory::of_library(&library);
    let mut hotspot = HotSpot::read_tables(|name| library.symbol(name), memory)
        .map_err(|error| format!("unsupported VM: {error}"))?;
    let offsets = hotspot.thread_offsets();
    let own = u32::try_from(nix::unistd::gettid().as_raw()).unwrap_or(0);
    let mut threads = hotspot.java_threads(memory);
    let thread = threads.find(|&thread| hotspot.thread_id(memory, thread) == Some(own));
    // The main thread is listed before the VM has made everything, and gets its object afterwards.
    let has_object = |thread: &u64| {
        let object = offsets.thread_object.map(|offset| memory.read_u64(thread.wrapping_add(offset.into())));
        object.is_none_or(|object| object.is_ok_and(|object| object != 0))
    };
    let Some(thread) = thread.filter(has_object) else { return Ok(()) };
    if vm_memory::start(&mut hotspot, memory).is_err() {
        return Ok(());
    }
    flags::switch_on(&hotspot, memory);
    publish(hotspot, memory, thread, jni.address())?;
    *PRELOADED_IN.lock() = Some(vm);
    queue_drain::set_on_first_queue(follow_thread_ends);
    Ok(())
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

/// Publishes the API in a VM that is initialised.
fn start(jni: Jni, thread: Option<ThreadRef>) -> Result<(), Refusal> {
    let Some(Prepared { jvmti, mut hotspot, memory }) = PREPARED.lock().take() else { return Ok(()) };
    let unsupported = |reason: &str| Refusal::unsupported(&jvmti, reason.to_owned());
    vm_memory::start(&mut hotspot, memory)
        .map_err(|error| Refusal::unsupported(&jvmti, error.to_string()))?;
    let address = thread.and_then(|thread| jni.java_thread(thread));
    let address = address.ok_or_else(|| unsupported("the calling thread has no JavaThread"))?;
    publish(hotspot, memory, address, jni.address()).map_err(|reason| unsupported(&reason))?;
    for event in [jvmtiEvent::JVMTI_EVENT_THREAD_START, jvmtiEvent::JVMTI_EVENT_NATIVE_METHOD_BIND] {
        if let Err(error) = jvmti.enable(event) {
            tracing::info!("libraries that are loaded later may be missing: {error}");
        }
    }
    // Only the first call gets here.
    let _ = JVMTI.set(jvmti);
    queue_drain::set_on_first_queue(follow_thread_ends);
    Ok(())
}

/// Publishes the API in a VM that has started; the calling thread is the Java thread at `thread`, with the JNI environment at
/// `environment`.
fn publish(
    hotspot: HotSpot,
    memory: &'static LiveMemory,
    thread: u64,
    environment: u64,
) -> Result<(), String> {
    vm_memory::add_archive(memory, &hotspot);
    let offsets = hotspot.thread_offsets();
    let sp = std::ptr::from_ref(&thread) as u64;
    if let Some(field) = thread_layout::wrong_field(memory, thread, sp, &offsets) {
        return Err(format!("unknown layout of JavaThread: {field}"));
    }
    let block = own_stack::find();
    let threads = Threads::find(memory, thread, environment, block, first_stack_end());
    let threads = threads.ok_or("the VM's key of the current thread was not found")?;
    let tables = Box::into_raw(Box::new(LibraryTables::read(memory, 1)));
    LOADED.store(symbols::loads().unwrap_or(0), Ordering::Relaxed);
    let libraries = AtomicPtr::new(tables);
    let stopping_collector = hotspot.stopping_collector(memory);
    let memos = Memos(memos());
    let api = Api { hotspot, memory, offsets, threads, memos, stopping_collector, libraries };
    api::publish(Box::leak(Box::new(api)));
    Ok(())
}

/// The environment whose events are enabled when the first queue is registered.
static JVMTI: OnceLock<Jvmti> = OnceLock::new();
/// The VM of a process that preloads the library.
static PRELOADED_IN: Mutex<Option<Vm>> = Mutex::new(None);

/// Makes an environment for events in a process that preloads the library; for calls by clients, which are in native code.
fn late_jvmti() -> Option<Jvmti> {
    let vm = (*PRELOADED_IN.lock())?;
    let jvmti = vm.separate_jvmti().ok()?;
    jvmti.set_callbacks(&event_callbacks()).ok()?;
    Some(jvmti)
}

/// Enables the events that queues need.
fn follow_thread_ends() {
    let Some(jvmti) = JVMTI.get().copied().or_else(late_jvmti) else { return };
    for event in [jvmtiEvent::JVMTI_EVENT_THREAD_END, jvmtiEvent::JVMTI_EVENT_VM_DEATH] {
        if let Err(error) = jvmti.enable(event) {
            tracing::info!("queues of threads that have ended remain: {error}");
        }
    }
}

fn memos() -> &'static [Memo] {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let count = (processors * MEMOS_PER_PROCESSOR).clamp(*MEMOS.start(), *MEMOS.end());
    let memo = |_| Memo::new(Box::leak(vec![[0; 8]; ID_SETS].into_boxed_slice()));
    Box::leak((0..count).map(memo).collect())
}

/// The end of the stack of the process's first thread, 0 if it is unknown.
fn first_stack_end() -> u64 {
    let text = maps::read().unwrap_or_default();
    maps::parse(&text).find(|mapping| mapping.path == "[stack]").map_or(0, |mapping| mapping.end)
}

// ---------------------------------------------------------------- libraries that are loaded later

/// Libraries that were loaded and unloaded so far when the present list was made. Relaxed: a hint.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// Lists that were replaced.
static REPLACED: Mutex<Replaced> = Mutex::new(Replaced { lists: Vec::new(), version: 1 });

struct Replaced {
    lists: Vec<Retired>,
    version: u64,
}

struct Retired {
    list: *mut LibraryTables,
    /// For each memo, whether it was not seen free since.
    pending: Vec<bool>,
}

// SAFETY: the list is owned by whoever has the record.
unsafe impl Send for Retired {}

/// Makes the list of libraries again if the dynamic linker has loaded or unloaded something.
pub(super) fn follow_libraries() {
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
            // SAFETY: made by `Box::into_raw`; each walk that begins now sees a later list, and all earlier ones have ended.
            drop(unsafe { Box::from_raw(retired.list) });
        }
        is_in_use
    });
}

// ---------------------------------------------------------------- events

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, env: *mut Env, thread: jobject) {
    // SAFETY: the VM passes the environment of the calling thread.
    let jni = unsafe { Jni::new(env.cast()) };
    // SAFETY: and a reference to it.
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
