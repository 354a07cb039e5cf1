//! Functions at the root of every thread, which are left out of tables by total time.

/// Names without parameters; the page uses them as well.
pub const ROOTS: [&str; 23] = [
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
    "_start",
    "__libc_start_main",
    "thread_native_entry",
    "java_start",
    "Thread::call_run",
    "JavaThread::run",
    "JavaThread::thread_main_inner",
    "thread_entry",
    "ThreadJavaMain",
    "JavaMain",
    "jni_CallStaticVoidMethod",
    "jni_invoke_static",
    "JavaCalls::call",
    "JavaCalls::call_virtual",
    "JavaCalls::call_helper",
    // JDK 25, `src/java.base/share/native/libjli/java.c`.
    "invokeStaticMainWithArgs",
    "invokeStaticMainWithoutArgs",
    "invokeInstanceMainWithArgs",
];

/// Returns whether a function is a root, with or without parameters in its name.
pub fn is_root(name: &str) -> bool {
    ROOTS.contains(&name.split('(').next().unwrap_or_default())
}
