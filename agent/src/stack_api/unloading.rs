//! The iterator generation: functions that are called when classes are unloaded (`agent/include/iterator/profile2.h`).
//!
//! Problem: the proposal calls them before a class is freed, which no event of a stock VM allows on all releases (newer
//! ones pass a name to `com.sun.hotspot.events.ClassUnload`, after the class was freed).
//! Approach: when the first function is registered or a class is prepared, its mirror (the `java.lang.Class`) is tagged
//! and its addresses are noted. The mirror dies with its class, and the VM reports freed tagged objects. The thread of
//! the queues then calls the functions.
//! Invariants: each function is called once for a noted class, after it was unloaded. The event, which may come at a
//! safepoint, takes one lock, under which nothing of the VM is called.
//! Sources: JVMTI 1.2 (SetTag, ObjectFree, ClassPrepare), `prims/jvmtiExport.cpp` and `prims/jvmtiExtensions.cpp`
//! (`post_class_unload`), JDK 11 to 25.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use jni::sys::{jclass, jlong, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;

use super::api::{Api, api};
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

/// The noted classes, and the functions to call.
struct Classes {
    functions: Vec<Function>,
    /// By tag.
    noted: BTreeMap<jlong, Noted>,
    /// Tags of mirrors that were freed.
    freed: Vec<jlong>,
    /// Tags are never used again.
    last_tag: jlong,
}

static CLASSES: Mutex<Classes> =
    Mutex::new(Classes { functions: Vec::new(), noted: BTreeMap::new(), freed: Vec::new(), last_tag: 0 });
/// Set once classes are followed.
static ENVIRONMENT: OnceLock<Jvmti> = OnceLock::new();

/// Registers a function; no effect if the VM's jmethodIDs are not addresses, or it does not report freed objects.
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
        CLASSES.lock().functions.push(Function(fun, AtomicPtr::new(argument)));
    });
}

/// Removes a function that was registered with this argument, which is not called after this returns; returns whether
/// there was one.
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
        let mut classes = CLASSES.lock();
        let place = classes.functions.iter().position(|function| function.is(fun, argument));
        if let Some(place) = place {
            classes.functions.remove(place);
        }
        drop(classes);
        queue_drain::await_functions();
        place.is_some()
    })
}

/// Starts the thread, enables the events and notes all classes.
fn follow_classes(api: &'static Api) -> Result<(), String> {
    if api.hotspot.jdk_major() > LAST_WITH_ADDRESSES {
        return Err("jmethodIDs of this JVM are not addresses".to_owned());
    }
    let text = |error: JvmtiError| error.to_string();
    let (jvmti, jni) = (api.vm.separate_jvmti().map_err(text)?, api.vm.jni().map_err(text)?);
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

/// Notes a class and tags its mirror, unless it has a tag. Arrays and classes without methods are left out.
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
        let mut classes = CLASSES.lock();
        classes.last_tag += 1;
        let tag = classes.last_tag;
        classes.noted.insert(tag, noted);
        tag
    };
    if jvmti.set_tag(class, tag).is_err() {
        CLASSES.lock().noted.remove(&tag);
    }
}

/// Calls the client's functions for freed classes; on the thread of the queues.
fn call_functions() {
    let freed = std::mem::take(&mut CLASSES.lock().freed);
    for tag in freed {
        let mut classes = CLASSES.lock();
        let Some(Noted { class, mut methods }) = classes.noted.remove(&tag) else { continue };
        let count = i32::try_from(methods.len()).unwrap_or(i32::MAX);
        let functions = classes.functions.iter();
        let functions: Vec<(Unloaded, *mut c_void)> =
            functions.map(|function| (function.0, function.1.load(Ordering::Relaxed))).collect();
        drop(classes);
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
            // SAFETY: the VM passes its environment.
            note(api, unsafe { Jvmti::new(jvmti) }, class);
        }
    });
}

unsafe extern "C" fn object_free(_jvmti: *mut jvmtiEnv, tag: jlong) {
    guard::callback(|| CLASSES.lock().freed.push(tag));
}
