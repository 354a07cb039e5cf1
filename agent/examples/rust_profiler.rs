//! A CPU-time profiler in Rust over the iterator stack-walk API: a timer, a handler, and at the end of the JVM counts
//! of walks by code, a list of methods and a flame graph. `profiler.c` is the same in C.
//!
//!   cargo build --release -p agent --lib --example rust_profiler
//!   java -agentpath:target/release/libtickwalk.so=mode=api \
//!     -agentpath:target/release/examples/librust_profiler.so=flames.html -jar app.jar
#![allow(unsafe_code, reason = "functions of the agent library and a signal handler")]

#[path = "../include/iterator/profile2.rs"]
mod profile2;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Frames of one trace, and words for all traces: each is its length and its methods, newest first.
const DEPTH: usize = 1024;
static TRACES: [AtomicU64; 1 << 22] = [const { AtomicU64::new(0) }; 1 << 22];
static USED: AtomicUsize = AtomicUsize::new(0);
/// Walks by their code, negated; 0 for success.
static CODES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
static FILE: OnceLock<String> = OnceLock::new();

/// Runs in the signal handler: allocates nothing, takes no lock.
extern "C" fn on_tick(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let (mut methods, mut count) = ([0; DEPTH], 0);
    let each = |frame: &profile2::Frame| {
        if let Some(place) = methods.get_mut(count) {
            *place = frame.method;
            count += 1;
        }
    };
    // SAFETY: the context of this handler.
    let code = match unsafe { profile2::walk(context, 0, each) } {
        Err(0) => profile2::NO_TOP_JAVA_FRAME,
        result => result.err().unwrap_or(0),
    };
    CODES[code.unsigned_abs().min(63) as usize].fetch_add(1, Relaxed);
    if count > 0 {
        let words = std::iter::once(count as u64).chain(methods.into_iter().take(count));
        for (word, value) in TRACES.iter().skip(USED.fetch_add(count + 1, Relaxed)).zip(words) {
            word.store(value, Relaxed);
        }
    }
}

/// Ticks each time the process has used so much CPU time, in microseconds; 0 for never.
fn every(micros: i64) -> c_int {
    let time = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the timer is readable.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) }
}

/// Called by the VM before it starts; the functions answer once it is initialised.
#[unsafe(no_mangle)]
extern "C" fn Agent_OnLoad(_vm: *mut c_void, options: *const c_char, _reserved: *mut c_void) -> c_int {
    // SAFETY: null, or a text that ends with NUL.
    let file =
        (!options.is_null()).then(|| unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned());
    FILE.get_or_init(|| file.filter(|file| !file.is_empty()).unwrap_or_else(|| "flames.html".to_owned()));
    // SAFETY: zeros are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_tick as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: a handler that obeys the rules of signal handlers.
    unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) };
    every(1000)
}

/// Called by the VM at its end.
#[unsafe(no_mangle)]
extern "C" fn Agent_OnUnload(_vm: *mut c_void) {
    every(0);
    let codes = CODES.each_ref().map(|count| count.load(Relaxed));
    // Without Java frames: before VMInit (-1), of threads that end (-2), and of others (-4).
    let (total, without) = (codes.iter().sum::<u64>(), codes[1] + codes[2] + codes[4]);
    let failed = total - without - codes[0];
    println!("Total walks: {total}\nWithout Java frames: {without}\nFailed walks: {failed}");
    for (code, count) in codes.iter().enumerate().filter(|(_, count)| **count > 0) {
        println!("Walks with code -{code}: {count}");
    }
    let mut words = TRACES.iter().map(|word| word.load(Relaxed));
    let mut names = HashMap::new();
    let mut traces = Vec::new();
    while let Some(count) = words.next().filter(|&count| count > 0) {
        let mut trace: Vec<u64> = words.by_ref().take(count as usize).collect();
        trace.reverse();
        trace.iter().for_each(|&method| _ = names.entry(method).or_insert_with(|| profile2::name_of(method)));
        traces.push(trace);
    }
    traces.sort();
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    traces.iter().for_each(|trace| *own.entry(&names[&trace[trace.len() - 1]]).or_default() += 1);
    let mut own: Vec<_> = own.into_iter().collect();
    own.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (name, count) in own.iter().take(20) {
        println!("{:7.2} %  {name}", *count as f64 / traces.len() as f64 * 100.0);
    }
    let style =
        "<style>p{position:absolute;margin:0;height:15px;overflow:hidden;font:11px sans-serif}</style>\n";
    let mut html = style.to_owned();
    boxes(&mut html, &traces, (0, 0.0, traces.len() as f64), &names);
    let file = FILE.get().map_or("flames.html", String::as_str);
    if let Err(error) = std::fs::write(file, html) {
        eprintln!("rust_profiler: cannot write {file}: {error}");
    }
}

type Position = (usize, f64, f64);

/// Writes a box for each run of equal frames at a depth of sorted traces, oldest frame first, and the boxes above it.
fn boxes(
    html: &mut String,
    traces: &[Vec<u64>],
    (depth, mut left, all): Position,
    names: &HashMap<u64, String>,
) {
    for run in traces.chunk_by(|a, b| a.get(depth) == b.get(depth)) {
        let width = run.len() as f64 / all * 100.0;
        if let Some(method) = run[0].get(depth) {
            let (name, top, hue) = (names[method].replace('<', "&lt;"), depth * 16, method % 40 + 20);
            let place = format!("left:{left}%;width:{width}%;top:{top}px;background:hsl({hue},90%,70%)");
            let _ = writeln!(html, "<p title='{name} {width:.2} %' style='{place}'>{name}");
            boxes(html, run, (depth + 1, left, all), names);
        }
        left += width;
    }
}
