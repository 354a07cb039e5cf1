//! A CPU-time profiler in Rust over the iterator stack-walk API: a timer, a handler, and at the end of the JVM counts of walks
//! by code, a list of methods and a flame graph. `profiler.c` is the same in C.
//!
//!   cargo build --release -p agent --lib --example rust_profiler
//!   java -agentpath:target/release/libtickwalk.so=mode=api \
//!     -agentpath:target/release/examples/librust_profiler.so=flames.html -jar app.jar
#![allow(unsafe_code, reason = "functions of the agent library and a signal handler")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// `ASGST_Frame`.
#[repr(C)]
#[derive(Default)]
struct Frame(u8, c_int, c_int, u64, [u64; 3]);

/// `ASGST_MethodInfo`: class; name, signature and generic signature with their lengths; numbers.
#[repr(C)]
#[derive(Default)]
struct MethodInfo(u64, Text, Text, Text, c_int, c_int, i64);

/// `ASGST_ClassInfo`: name and generic name with their lengths; numbers.
#[repr(C)]
#[derive(Default)]
struct ClassInfo(Text, Text, c_int, i64);

/// A buffer of the caller's.
#[repr(C)]
struct Text(*mut c_char, c_int);

impl Default for Text {
    fn default() -> Self {
        Self(std::ptr::null_mut(), 0)
    }
}

impl Text {
    fn of(bytes: &mut [u8; 200]) -> Self {
        Self(bytes.as_mut_ptr().cast(), 200)
    }
}

type Collect = extern "C" fn(*mut c_void, *mut Walk);

unsafe extern "C" {
    fn ASGST_RunWithIterator(context: *mut c_void, options: i32, fun: Collect, argument: *mut Walk) -> c_int;
    fn ASGST_NextFrame(iterator: *mut c_void, frame: *mut Frame) -> c_int;
    fn ASGST_GetMethodInfo(method: u64, info: *mut MethodInfo);
    fn ASGST_GetClassInfo(class: u64, info: *mut ClassInfo);
}

/// Frames of one trace.
const DEPTH: usize = 1024;
const WORDS: usize = 1 << 22;
/// Each trace as its length and its methods, newest first.
static TRACES: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static USED: AtomicUsize = AtomicUsize::new(0);
/// Walks by their code, negated; 0 also stands for success.
static CODES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
static FILE: OnceLock<String> = OnceLock::new();

#[repr(C)]
struct Walk {
    count: usize,
    end: c_int,
    methods: [u64; DEPTH],
}

extern "C" fn collect(iterator: *mut c_void, walk: *mut Walk) {
    // SAFETY: the walk of the handler that calls.
    let walk = unsafe { &mut *walk };
    let mut frame = Frame::default();
    while let Some(place) = walk.methods.get_mut(walk.count) {
        // SAFETY: the iterator of this call.
        walk.end = unsafe { ASGST_NextFrame(iterator, &raw mut frame) };
        if walk.end != 1 {
            return;
        }
        *place = frame.3;
        walk.count += 1;
    }
}

/// Runs in the signal handler: allocates nothing, takes no lock.
extern "C" fn on_tick(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut walk = Walk { count: 0, end: 0, methods: [0; DEPTH] };
    // SAFETY: the context of this handler, and a function that fits.
    let kind = unsafe { ASGST_RunWithIterator(context, 0, collect, &raw mut walk) };
    let code = if kind > 0 { walk.end.min(0) } else { kind };
    let place = if kind > 0 && code == 0 { 0 } else { code.unsigned_abs().clamp(1, 63) as usize };
    CODES[place].fetch_add(1, Relaxed);
    if kind > 0 {
        let first = USED.fetch_add(walk.count + 1, Relaxed);
        let words = [walk.count as u64].into_iter().chain(walk.methods.iter().copied().take(walk.count));
        for (word, value) in TRACES.iter().skip(first).zip(words) {
            word.store(value, Relaxed);
        }
    }
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

/// Ticks each time the process has used so much CPU time, in microseconds; 0 for never.
fn every(micros: i64) -> c_int {
    let time = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the timer is readable.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) }
}

fn name_of(method: u64) -> String {
    let (mut name, mut class_name) = ([0; 200], [0; 200]);
    let mut info = MethodInfo(0, Text::of(&mut name), Text::default(), Text::default(), 0, 0, 0);
    // SAFETY: the buffers live until the call returns.
    unsafe { ASGST_GetMethodInfo(method, &raw mut info) };
    let mut class = ClassInfo(Text::of(&mut class_name), Text::default(), 0, 0);
    // SAFETY: as above.
    unsafe { ASGST_GetClassInfo(info.0, &raw mut class) };
    let text = |bytes| CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned();
    format!("{}.{}", text(&class_name), text(&name))
}

/// Writes a box for each run of equal frames at `depth` of sorted traces, oldest frame first, and the boxes above it.
fn boxes(
    html: &mut String,
    traces: &[Vec<u64>],
    (depth, left, total): (usize, f64, f64),
    names: &HashMap<u64, String>,
) {
    let mut at = left;
    for run in traces.chunk_by(|a, b| a.get(depth) == b.get(depth)) {
        let share = run.len() as f64 / total * 100.0;
        if let Some(method) = run[0].get(depth) {
            let (name, top) = (names[method].replace('<', "&lt;"), depth * 16);
            let hue = method % 40 + 20;
            let _ = writeln!(
                html,
                "<p title='{name} {share:.2} %' style='left:{at}%;width:{share}%;top:{top}px;background:hsl({hue},90%,70%)'>{name}"
            );
            boxes(html, run, (depth + 1, at, total), names);
        }
        at += share;
    }
}

/// Called by the VM at its end.
#[unsafe(no_mangle)]
extern "C" fn Agent_OnUnload(_vm: *mut c_void) {
    every(0);
    let mut words = TRACES.iter().map(|word| word.load(Relaxed));
    let mut traces = Vec::new();
    while let Some(count) = words.next().filter(|&count| count > 0) {
        let mut trace: Vec<u64> = words.by_ref().take(count as usize).collect();
        trace.reverse();
        traces.push(trace);
    }
    traces.sort();
    let codes: BTreeMap<usize, u64> = CODES.iter().map(|code| code.load(Relaxed)).enumerate().collect();
    // Before VMInit the code is -1; threads without Java frames have -4.
    let (total, without) = (codes.values().sum::<u64>(), codes[&1] + codes[&4]);
    println!(
        "Total walks: {total}\nWithout Java frames: {without}\nFailed walks: {}",
        total - without - codes[&0]
    );
    for (code, count) in codes.iter().filter(|(_, count)| **count > 0) {
        println!("Walks with code -{code}: {count}");
    }
    let methods: HashSet<u64> = traces.iter().flatten().copied().collect();
    let names: HashMap<u64, String> = methods.into_iter().map(|method| (method, name_of(method))).collect();
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for method in traces.iter().filter_map(|trace| trace.last()) {
        *own.entry(&names[method]).or_default() += 1;
    }
    let mut own: Vec<_> = own.into_iter().collect();
    own.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (name, count) in own.iter().take(20) {
        println!("{:7.2} %  {name}", *count as f64 / traces.len() as f64 * 100.0);
    }
    let mut html =
        "<style>p{position:absolute;margin:0;height:15px;overflow:hidden;font:11px sans-serif}</style>\n"
            .to_owned();
    boxes(&mut html, &traces, (0, 0.0, traces.len() as f64), &names);
    let file = FILE.get().map_or("flames.html", String::as_str);
    if let Err(error) = std::fs::write(file, html) {
        eprintln!("rust_profiler: cannot write {file}: {error}");
    }
}
