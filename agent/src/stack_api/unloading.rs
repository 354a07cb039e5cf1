//! The iterator generation: functions that are called when classes are unloaded (`agent/include/iterator/profile2.h`).
//!
//! Problem: the proposal calls them before a class is freed. No event of a stock VM does that on all releases: its extension
//! `com.sun.hotspot.events.ClassUnload` passes a name, after the class was freed, in newer ones.
//! Approach: the mirror of each class (its `java.lang.Class`) is tagged, and its addresses are noted, when the first function
//! is registered or the class is prepared. A mirror dies with its class, and the VM reports each tagged object that a
//! collection has freed. The thread of the queues calls the functions then.
//! Invariants: of a class that is noted, each function learns once, after its unloading. The event takes one lock, under which
//! nothing of the VM is called; it may come at a safepoint.
//! Sources: JVMTI 1.2 (SetTag, ObjectFree, ClassPrepare), `prims/jvmtiExport.cpp` and `prims/jvmtiExtensions.cpp`
//! (`post_class_unload`), JDK 11 to 25.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use jni::sys::{jclass, jlong, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;

use super::api::{Api, api};
use super::created_vm::created_vm;
use super::queue_drain;
use super::walk::LAST_WITH_ADDRESSES;
use crate::guest::log;
use crate::jvmti::classes::ClassRef;
use crate::jvmti::{Jvmti, JvmtiError, guard};

/// Bit of `can_tag_objects` in the first word of capabilities, and of `can_generate_object_free_events` in the second
/// (`jvmti.h`).
const TAG_OBJECTS: u32 = 1;
const OBJECT_FREE_EVENTS: u32 = 1;

/// Local references that the list of loaded classes may take.
const LOADED_CLASSES: usize = 1 << 16;

/// `ASGST_ClassUnloadHandler`.
type Unloaded = unsafe extern "C" fn(u64, *mut u64, i32, bool, *mut c_void);

/// A client's function and its argument.
struct Function(Unloaded, AtomicPtr<c_void>);

impl Function {
    fn is(&self, fun: Unloaded, argument: *mut c_void) -> bool {
        std::ptr::fn_addr_eq(self.0, fun) && self.1.load(Ordering::Relaxed) == argument
    }
}

/// Addresses of a class and its methods.
struct Noted {
    class: u64,
    methods: Vec<u64>,
}

static FUNCTIONS: Mutex<Vec<Function>> = Mutex::new(Vec::new());
/// By tag.
static NOTED: Mutex<Option<HashMap<jlong, Noted>>> = Mutex::new(None);
/// Tags of mirrors that were freed.
static FREED: Mutex<Vec<jlong>> = Mutex::new(Vec::new());
/// Tags are never used again. Relaxed: a number.
static NEXT_TAG: AtomicI64 = AtomicI64::new(1);
static ENVIRONMENT: OnceLock<Jvmti> = OnceLock::new();

/// Registers a function; without effect if the VM's jmethodIDs are no addresses, or it does not report freed objects.
///
/// # Safety
/// `fun` is null or valid, returns and does not unwind.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_RegisterClassUnloadHandler(fun: Option<Unloaded>, argument: *mut c_void) {
    guard::entry_point((), || {
        let (Some(fun), Some(api)) = (fun, api()) else { return };
        if ENVIRONMENT.get().is_none()
            && let Err(reason) = follow_classes(api)
        {
            log::print(&format!("unloaded classes are not reported: {reason}"));
            return;
        }
        FUNCTIONS.lock().push(Function(fun, AtomicPtr::new(argument)));
    });
}

/// Removes a function that was registered with this argument; returns whether there was one. It is not called after this has
/// returned.
///
/// # Safety
/// None; the types are those of C.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_DeregisterClassUnloadHandler(
    fun: Option<Unloaded>,
    argument: *mut c_void,
) -> bool {
    guard::entry_point(false, || {
        let Some(fun) = fun else { return false };
        let mut functions = FUNCTIONS.lock();
        let place = functions.iter().position(|function| function.is(fun, argument));
        if let Some(place) = place {
            functions.remove(place);
        }
        drop(functions);
        queue_drain::await_functions();
        place.is_some()
    })
}

/// Starts the thread, enables the events and notes all classes.
fn follow_classes(api: &'static Api) -> Result<(), String> {
    if api.hotspot.jdk_major() > LAST_WITH_ADDRESSES {
        return Err("jmethodIDs of this JVM are no addresses".to_owned());
    }
    let vm = created_vm().ok_or("there is no VM")?;
    let text = |error: JvmtiError| error.to_string();
    let (jvmti, jni) = (vm.separate_jvmti().map_err(text)?, vm.jni().map_err(text)?);
    let capabilities = jvmtiCapabilities {
        _bindgen_bitfield_1_: TAG_OBJECTS,
        _bindgen_bitfield_2_: OBJECT_FREE_EVENTS,
        ..jvmtiCapabilities::default()
    };
    jvmti.add_capabilities(&capabilities).map_err(text)?;
    let callbacks = jvmtiEventCallbacks {
        ClassPrepare: Some(class_prepare),
        ObjectFree: Some(object_free),
        ..jvmtiEventCallbacks::default()
    };
    jvmti.set_callbacks(&callbacks).map_err(text)?;
    queue_drain::also(api, call_functions).map_err(|error| error.to_string())?;
    *NOTED.lock() = Some(HashMap::new());
    for event in [jvmtiEvent::JVMTI_EVENT_OBJECT_FREE, jvmtiEvent::JVMTI_EVENT_CLASS_PREPARE] {
        jvmti.enable(event).map_err(text)?;
    }
    jni.in_frame(LOADED_CLASSES, || {
        let classes = jvmti.loaded_classes().map_err(text)?;
        classes.into_iter().for_each(|class| note(api, jvmti, class));
        Ok::<(), String>(())
    })?;
    // Only the first function gets here.
    let _ = ENVIRONMENT.set(jvmti);
    Ok(())
}

/// Notes a class and tags its mirror, unless it is tagged. Arrays and classes without methods have no address here.
fn note(api: &Api, jvmti: Jvmti, class: ClassRef) {
    if jvmti.tag(class) != Ok(0) {
        return;
    }
    let Ok(ids) = jvmti.method_ids(class) else { return };
    let methods = ids.iter().filter_map(|&id| api.hotspot.method_of_id(api.memory, id as u64));
    let methods: Vec<_> = methods.collect();
    let address = methods.first().and_then(|&method| api.hotspot.class_of(api.memory, method).ok());
    let Some(address) = address else { return };
    let noted = Noted { class: address.0, methods: methods.into_iter().map(|method| method.0).collect() };
    let tag = {
        let mut all = NOTED.lock();
        let Some(all) = all.as_mut() else { return };
        let tag = NEXT_TAG.fetch_add(1, Ordering::Relaxed);
        all.insert(tag, noted);
        tag
    };
    if jvmti.set_tag(class, tag).is_err()
        && let Some(all) = NOTED.lock().as_mut()
    {
        all.remove(&tag);
    }
}

/// Calls the client's functions with the classes that were freed; on the thread of the queues.
fn call_functions() {
    let freed = std::mem::take(&mut *FREED.lock());
    for tag in freed {
        let noted = NOTED.lock().as_mut().and_then(|all| all.remove(&tag));
        let Some(Noted { class, mut methods }) = noted else { continue };
        let count = i32::try_from(methods.len()).unwrap_or(i32::MAX);
        let functions: Vec<(Unloaded, *mut c_void)> = FUNCTIONS
            .lock()
            .iter()
            .map(|function| (function.0, function.1.load(Ordering::Relaxed)))
            .collect();
        for (fun, argument) in functions {
            // SAFETY: a registered function of the client; the methods live until it returns.
            unsafe { fun(class, methods.as_mut_ptr(), count, false, argument) };
        }
    }
}

unsafe extern "C" fn class_prepare<Env>(
    jvmti: *mut jvmtiEnv,
    _env: *mut Env,
    _thread: jobject,
    class: jclass,
) {
    guard::callback(|| {
        if let Some(api) = api() {
            // SAFETY: the VM passes a reference to the class.
            let class = unsafe { ClassRef::new(class) };
            // SAFETY: and its environment.
            note(api, unsafe { Jvmti::new(jvmti) }, class);
        }
    });
}

unsafe extern "C" fn object_free(_jvmti: *mut jvmtiEnv, tag: jlong) {
    guard::callback(|| FREED.lock().push(tag));
}
