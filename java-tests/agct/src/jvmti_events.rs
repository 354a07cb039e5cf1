//! The class events that AsyncGetCallTrace needs, and the jmethodIDs they make.
//!
//! Approach: GetClassMethods creates the jmethodIDs of a class; it is called for all classes at start and for each
//! class when it is prepared, which is also a quiet point for [`quiet`].
//! Source: JVM Tool Interface 1.2.

use std::sync::atomic::{AtomicI64, Ordering};

use jni::sys::{jclass, jint, jmethodID, jobject};
use jvmti_sys::{jvmtiCapabilities, jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use tickwalk::jvmti::{Jvmti, JvmtiError};
use tickwalk::jvmti_call;

use crate::{differences, quiet};

/// `can_get_bytecodes` in the first word of the capabilities.
const BYTECODES: u32 = 1 << 3;
/// `can_get_constant_pool` in the second.
const CONSTANT_POOL: u32 = 1 << 3;

/// Distance from a JavaThread to its JNI environment, 0 before [`start`].
static ENV_OFFSET: AtomicI64 = AtomicI64::new(0);

/// Adds capabilities and callbacks, and switches the class events on.
///
/// # Errors
/// As AddCapabilities, SetEventCallbacks and SetEventNotificationMode.
pub fn prepare(jvmti: &Jvmti, callbacks: &mut jvmtiEventCallbacks) -> Result<(), JvmtiError> {
    jvmti.add_capabilities(&jvmtiCapabilities {
        _bindgen_bitfield_1_: BYTECODES,
        _bindgen_bitfield_2_: CONSTANT_POOL,
        ..jvmtiCapabilities::default()
    })?;
    callbacks.ClassLoad = Some(class_load);
    callbacks.ClassPrepare = Some(class_prepare);
    jvmti.set_callbacks(callbacks)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_LOAD)?;
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_CLASS_PREPARE)
}

/// Makes the jmethodIDs of all loaded classes.
pub fn start(jvmti: &Jvmti, env_offset: u64) {
    for class in loaded_classes(jvmti) {
        differences::add_methods(class_methods(jvmti, class));
    }
    ENV_OFFSET.store(env_offset.cast_signed(), Ordering::Release);
}

/// Returns all loaded classes, as local references.
fn loaded_classes(jvmti: &Jvmti) -> Vec<jclass> {
    let (mut count, mut classes) = (0, std::ptr::null_mut());
    let outcome = jvmti_call!(
        jvmti,
        GetLoadedClasses: fn(*mut jint, *mut *mut jclass), &raw mut count, &raw mut classes
    );
    // SAFETY: the VM allocated `count` references at `classes`.
    if outcome.is_ok() { unsafe { jvmti.take_array(classes, count) } } else { Vec::new() }
}

/// Makes the VM create the jmethodIDs of a class, and returns them.
fn class_methods(jvmti: &Jvmti, class: jclass) -> Vec<u64> {
    let (mut count, mut methods) = (0, std::ptr::null_mut());
    let outcome = jvmti_call!(
        jvmti,
        GetClassMethods: fn(jclass, *mut jint, *mut *mut jmethodID),
        class, &raw mut count, &raw mut methods
    );
    if outcome.is_err() {
        return Vec::new();
    }
    // SAFETY: the VM allocated `count` of them at `methods`.
    let methods: Vec<jmethodID> = unsafe { jvmti.take_array(methods, count) };
    methods.into_iter().map(|method| method as u64).collect()
}

/// AsyncGetCallTrace needs the event, not the callback.
unsafe extern "C" fn class_load<Env>(_: *mut jvmtiEnv, _: *mut Env, _: jobject, _: jclass) {}

unsafe extern "C" fn class_prepare<Env>(env: *mut jvmtiEnv, jni: *mut Env, _thread: jobject, class: jclass) {
    // SAFETY: the VM passes our environment.
    let jvmti = unsafe { Jvmti::new(env) };
    differences::add_methods(class_methods(&jvmti, class));
    let env_offset = ENV_OFFSET.load(Ordering::Acquire);
    if env_offset != 0 {
        quiet::compare(&jvmti, (jni as u64).wrapping_add_signed(-env_offset));
    }
}
