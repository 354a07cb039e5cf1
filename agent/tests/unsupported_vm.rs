//! A JVM that is not HotSpot: one clear line, and the program runs; with `strict` it does not start.
//!
//! The test takes the place of the JVM: an invocation table whose GetEnv returns a JVMTI environment without functions, in
//! a process whose libraries export no `gHotSpotVMStructs`, like those of OpenJ9.
//! The agent writes to standard error, so each case runs in a process of its own.

use std::ffi::{CString, c_void};
use std::process::{Command, Output};

use jni::sys::{JNI_ERR, JNI_OK, JavaVM, jint};

/// Set in the child, to the agent's options.
const OPTIONS: &str = "TICKWALK_TEST_OPTIONS";

/// More entries than any JVMTI version has.
static NO_FUNCTIONS: [usize; 256] = [0; 256];

unsafe extern "system" fn get_env(_vm: *mut JavaVM, env: *mut *mut c_void, _version: jint) -> jint {
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

/// Runs this test again in a child, with `options`.
fn run(options: &str) -> Output {
    Command::new(std::env::current_exe().expect("this test's path"))
        .args(["--exact", "an_unknown_vm_is_named", "--nocapture"])
        .env(OPTIONS, options)
        .output()
        .expect("the child runs")
}

#[test]
fn an_unknown_vm_is_named() {
    if let Ok(options) = std::env::var(OPTIONS) {
        println!("\nreturned {}", load(&options));
        return;
    }
    let folder = std::env::temp_dir().join(format!("tickwalk-unsupported-{}", std::process::id()));
    let file = folder.with_extension("tickwalk");
    for (more, result, consequence) in
        [("", JNI_OK, "the program runs unprofiled"), (",strict", JNI_ERR, "strict: the JVM does not start")]
    {
        let output = run(&format!("file={}{more}", file.display()));
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains(&format!("\nreturned {result}\n")), "{stdout}{stderr}");
        let ours: Vec<&str> = stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
        let [line] = ours[..] else { panic!("not exactly one line: {stderr}") };
        assert!(line.contains("unsupported JVM") && line.contains("gHotSpotVMStructs"), "{line}");
        assert!(line.ends_with(consequence), "{line}");
        assert!(!file.exists(), "nothing may be written");
    }
}
