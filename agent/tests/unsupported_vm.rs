//! A JVM that is not HotSpot: one clear line, and the program runs; with `strict` it does not start. A JVM that is
//! being created: it is waited for.
//!
//! The test takes the place of the JVM: an invocation table whose GetEnv returns a JVMTI environment without
//! functions, in a process whose libraries export no `gHotSpotVMStructs`, like those of OpenJ9. The agent writes to
//! standard error, so each case runs in a process of its own.

use std::ffi::{CString, c_void};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use jni::sys::{JNI_EDETACHED, JNI_ERR, JNI_OK, JavaVM, jint};

/// Set in the child, to the agent's options.
const OPTIONS: &str = "TICKWALK_TEST_OPTIONS";
/// Set in the child, to the number of calls of GetEnv that a VM refuses which is being created.
const REFUSALS: &str = "TICKWALK_TEST_REFUSALS";

/// Calls of GetEnv that are refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// More entries than any JVMTI version has.
static NO_FUNCTIONS: [usize; 256] = [0; 256];

unsafe extern "system" fn get_env(_vm: *mut JavaVM, env: *mut *mut c_void, _version: jint) -> jint {
    if REFUSED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        return JNI_EDETACHED;
    }
    let table: &'static &'static [usize; 256] = Box::leak(Box::new(&NO_FUNCTIONS));
    // SAFETY: the caller passes a place for one pointer.
    unsafe { env.write(std::ptr::from_ref(table).cast_mut().cast()) };
    JNI_OK
}

/// Loads the agent in the child as a VM would; returns the agent's result.
fn load(options: &str) -> jint {
    // Three reserved entries, DestroyJavaVM, AttachCurrentThread, DetachCurrentThread, GetEnv, AttachAsDaemon.
    let functions = [0, 0, 0, 0, 0, 0, get_env as *const () as usize, 0];
    let mut vm: JavaVM = functions.as_ptr().cast();
    let options = CString::new(options).expect("no NUL");
    // SAFETY: the table has the layout of JNI's invocation interface and outlives the call.
    unsafe { tickwalk::Agent_OnLoad(&raw mut vm, options.as_ptr(), std::ptr::null_mut()) }
}

/// Acts as the VM if this is a child.
fn is_child() -> bool {
    let Ok(options) = std::env::var(OPTIONS) else { return false };
    let refusals = std::env::var(REFUSALS).map_or(0, |text| text.parse().expect("a number"));
    REFUSED.store(refusals, Ordering::Relaxed);
    println!("\nreturned {}", load(&options));
    true
}

/// Runs `test` again in a child, with `options`.
fn run(test: &str, options: &str, refusals: u32) -> Output {
    Command::new(std::env::current_exe().expect("this test's path"))
        .args(["--exact", test, "--nocapture"])
        .env(OPTIONS, options)
        .env(REFUSALS, refusals.to_string())
        .output()
        .expect("the child runs")
}

/// Asserts that the agent returned `result` and wrote one line with these parts, and no file.
fn check(test: &str, (more, refusals): (&str, u32), result: jint, parts: [&str; 3]) {
    let folder = std::env::temp_dir().join(format!("tickwalk-unsupported-{}", std::process::id()));
    let file = folder.with_extension("tickwalk");
    let output = run(test, &format!("file={}{more}", file.display()), refusals);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(&format!("\nreturned {result}\n")), "{stdout}{stderr}");
    let ours: Vec<&str> = stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
    let [line] = ours[..] else { panic!("not exactly one line: {stderr}") };
    assert!(parts.iter().all(|part| line.contains(part)) && line.ends_with(parts[2]), "{line}");
    assert!(!file.exists(), "nothing may be written");
}

#[test]
fn an_unknown_vm_is_named() {
    if is_child() {
        return;
    }
    for (more, result, consequence) in
        [("", JNI_OK, "the program runs unprofiled"), (",strict", JNI_ERR, "strict: the JVM does not start")]
    {
        let parts = ["unsupported JVM", "gHotSpotVMStructs", consequence];
        check("an_unknown_vm_is_named", (more, 0), result, parts);
    }
}

#[test]
fn a_vm_that_is_being_created_is_waited_for() {
    if is_child() {
        return;
    }
    let test = "a_vm_that_is_being_created_is_waited_for";
    let consequence = "the program runs unprofiled";
    // It is known after some refusals, and then it is the unknown VM.
    check(test, ("", 5), JNI_OK, ["unsupported JVM", "gHotSpotVMStructs", consequence]);
    check(test, ("", u32::MAX), JNI_OK, ["the JVM is still starting", "try again", consequence]);
}
