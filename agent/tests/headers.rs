//! The headers of the stack-walk API and of the control functions compile without warnings as C11 and as C++11,
//! with the layouts of the proposals.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"];

/// Folder with `jni.h`: that of the JDK whose compiler is found first.
fn jni_headers() -> PathBuf {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .filter_map(|folder| folder.join("javac").canonicalize().ok())
        .map(|javac| {
            javac.parent().and_then(Path::parent).map(|home| home.join("include")).unwrap_or_default()
        })
        .find(|include| include.join("jni.h").is_file());
    found.expect("a JDK with include/jni.h, whose javac is on the PATH")
}

fn accepts(compiler: &str, language: &[&str], include: &str, source: &str) -> Result<(), String> {
    let jni = jni_headers();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join(include);
    let mut child = Command::new(compiler)
        .args(WARNINGS)
        .args(language)
        .arg("-I")
        .arg(folder)
        .arg("-I")
        .arg(&jni)
        .arg("-I")
        .arg(jni.join("linux"))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler} runs: {error}"));
    child.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("the compiler reads");
    let output = child.wait_with_output().expect("the compiler ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiles the headers with these assertions in both languages.
#[track_caller]
fn check(include: &str, headers: &[&str], assertions: &[&str]) {
    let lines: String = headers.iter().map(|header| format!("#include \"{header}\"\n")).collect();
    let text = |keyword: &str| {
        let assertions = assertions.iter().map(|assertion| format!("{keyword}({assertion}, \"\");\n"));
        format!("{lines}#include <stddef.h>\n{}", assertions.collect::<String>())
    };
    accepts("cc", &["-xc", "-std=c11"], include, &text("_Static_assert")).expect("C11");
    accepts("c++", &["-xc++", "-std=c++11"], include, &text("static_assert")).expect("C++11");
    let wrong = format!("{lines}_Static_assert(sizeof(short) == 5, \"\");\n");
    assert!(accepts("cc", &["-xc", "-std=c11"], include, &wrong).is_err(), "assertions are compiled");
}

#[test]
fn iterator() {
    let assertions = [
        "sizeof(ASGST_Frame) == 48 && offsetof(ASGST_Frame, comp_level) == 4 && offsetof(ASGST_Frame, bci) == 8",
        "offsetof(ASGST_Frame, method) == 16 && offsetof(ASGST_Frame, pc) == 24 && offsetof(ASGST_Frame, fp) == 40",
        "sizeof(ASGST_MethodInfo) == 72 && offsetof(ASGST_MethodInfo, generic_signature) == 40",
        "offsetof(ASGST_MethodInfo, modifiers) == 52 && offsetof(ASGST_MethodInfo, class_idnum) == 64",
        "sizeof(ASGST_ClassInfo) == 40 && offsetof(ASGST_ClassInfo, modifiers) == 28 && offsetof(ASGST_ClassInfo, idnum) == 32",
        "sizeof(ASGST_MethodLineNumberEntry) == 8 && sizeof(ASGST_QueueElement) == 32 && sizeof(ASGST_QueueSizeInfo) == 12",
        "offsetof(ASGST_QueueElement, fp) == 8 && offsetof(ASGST_QueueElement, sp) == 16",
        "ASGST_REGISTER_QUEUE == 1 && ASGST_MARK_FRAME == 2 && ASGST_FRAME_NON_JAVA == 4",
        "ASGST_NO_TOP_JAVA_FRAME == -4 && ASGST_ENQUEUE_OTHER_ERROR == -7 && ASGST_NON_JAVA_TRACE == 2",
    ];
    check("iterator", &["profile2.h"], &assertions);
    let assertions = ["sizeof(JFRLL_Frame) == 48 && JFRLL_FRAME_JAVA_NATIVE == 3 && JFRLL_NO_THREAD == -1"];
    check("iterator", &["jfrll_profile2.h"], &assertions);
}

#[test]
fn jep435() {
    let assertions = [
        "sizeof(ASGST_CallFrame) == 16 && sizeof(ASGST_CallTrace) == 24 && offsetof(ASGST_CallTrace, kind) == 4",
        "offsetof(ASGST_JavaFrame, comp_level) == 1 && offsetof(ASGST_JavaFrame, bci) == 2",
        "offsetof(ASGST_JavaFrame, method_id) == 8 && offsetof(ASGST_NonJavaFrame, pc) == 8",
        "ASGST_FRAME_STUB == 4 && ASGST_FRAME_CPP == 5 && ASGST_UNKNOWN_TRACE == 4 && ASGST_THREAD_NOT_JAVA == -10",
    ];
    check("jep435", &["profile.h"], &assertions);
}

/// Traces without a kind, as clients of 2022 initialise them.
#[test]
fn jep435_of_2022() {
    let assertions = [
        "sizeof(ASGST_CallFrame) == 16 && sizeof(ASGST_CallTrace) == 24 && offsetof(ASGST_CallTrace, frames) == 8",
        "offsetof(ASGST_CallTrace, frame_info) == 16 && ASGST_THREAD_NOT_JAVA == -10",
    ];
    check("jep435-2022", &["profile.h"], &assertions);
    let client = "#include <profile.h>\n#include <stddef.h>\nvoid walk(void *context) {\nASGST_CallFrame frames[8];\n\
                  ASGST_CallTrace trace = {0, frames, NULL};\nAsyncGetStackTrace(&trace, 8, context, 0);\n}\n";
    accepts("c++", &["-xc++", "-std=c++11"], "jep435-2022", client).expect("the older trace");
    assert!(accepts("c++", &["-xc++", "-std=c++11"], "jep435", client).is_err(), "the later one has a kind");
}

#[test]
fn callback() {
    let assertions = [
        "sizeof(ASGST_Frame) == 24 && sizeof(ASGST_FrameInfo) == 48 && offsetof(ASGST_FrameInfo, frame) == 24",
        "ASGST_unsupported_option == -11 && ASGST_WALK_LOOM_THREADS == 17",
    ];
    check("callback", &["profile.h"], &assertions);
}

#[test]
fn calltrace() {
    let assertions = [
        "sizeof(TICKWALK_CallFrame) == 16 && offsetof(TICKWALK_CallTrace, frames) == 16",
        "TICKWALK_ticks_thread_exit == -8 && TICKWALK_ticks_deopt == -9",
    ];
    check("calltrace", &["tickwalk_calltrace.h"], &assertions);
}

#[test]
fn control() {
    let assertions = ["TICKWALK_OK == 0 && TICKWALK_ERROR_FILE == 3 && TICKWALK_ERROR_OFF == 5"];
    check("control", &["tickwalk.h"], &assertions);
}
