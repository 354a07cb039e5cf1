//! Runs a function once the VM is initialised, independently of profiles.
//!
//! Approach: a JVMTI environment of its own, for the one event.
//! Sources: JVMTI 1.2, VMInit.

use jni::sys::jobject;
use jvmti_sys::{jvmtiEnv, jvmtiEvent, jvmtiEventCallbacks};
use parking_lot::Mutex;

use super::vm::Vm;
use super::{JvmtiError, guard};

/// The function that waits for the VM.
static WAITING: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Calls `then` on the VM's first thread when the VM is initialised; at once in a VM that runs, on the calling
/// thread. To be called once a process.
///
/// # Errors
/// As of a new environment.
pub fn when(vm: Vm, is_running: bool, then: impl FnOnce() + Send + 'static) -> Result<(), JvmtiError> {
    if is_running {
        then();
        return Ok(());
    }
    let jvmti = vm.separate_jvmti()?;
    let callbacks = jvmtiEventCallbacks { VMInit: Some(vm_init), ..jvmtiEventCallbacks::default() };
    jvmti.set_callbacks(&callbacks)?;
    *WAITING.lock() = Some(Box::new(then));
    jvmti.enable(jvmtiEvent::JVMTI_EVENT_VM_INIT)
}

unsafe extern "C" fn vm_init<Env>(_jvmti: *mut jvmtiEnv, _env: *mut Env, _thread: jobject) {
    guard::callback(|| {
        let then = WAITING.lock().take();
        if let Some(then) = then {
            then();
        }
    });
}
