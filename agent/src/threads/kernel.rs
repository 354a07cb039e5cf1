//! The kernel's view of the threads of this process: ids, names, kinds, stacks.
//!
//! Problem: no event announces GC, compiler and native threads to an agent.
//! Approach: `/proc/self/task` lists all threads, and their names give away their kind.
//! Invariant: text from `/proc` is parsed fallibly; a thread that ends meanwhile is left out.
//! Source: proc(5).

use std::fs::DirEntry;
use std::io;

use sampler_thread::characters::from_modified_utf8;
use sampler_thread::native::maps;
use sampler_thread::pacing::Pacer;
use sampler_thread::process::ThreadKind;

/// Returns all kernel thread ids of this process, sorted.
pub fn list() -> Vec<i32> {
    let Ok(listing) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let mut pacer = Pacer::start();
    let tid = |entry: io::Result<DirEntry>| {
        pacer.rest_if_due();
        entry.ok()?.file_name().to_str()?.parse().ok()
    };
    let mut tids: Vec<i32> = listing.filter_map(tid).collect();
    tids.sort_unstable();
    tids
}

/// Returns the kernel's name of a thread; a name of the VM's own that the kernel cuts is completed.
pub fn name_of(tid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    let name = from_modified_utf8(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
    if let Some(whole) = completed(&name) {
        return Some(whole);
    }
    let whole = CUT_NAMES
        .iter()
        .find(|whole| whole.len() > name.len() && name.len() == 15 && whole.starts_with(&name));
    Some(whole.map_or(name, |whole| (*whole).to_owned()))
}

/// Returns whether a thread blocks a signal; `None` if it has ended.
pub fn blocks(tid: i32, signal: i32) -> Option<bool> {
    Some(SignalState::of(tid, signal)?.is_blocked)
}

/// State of a signal in a thread, from `/proc/self/task/TID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalState {
    /// The thread blocks the signal.
    pub is_blocked: bool,
    /// The signal waits for the thread.
    pub is_pending: bool,
    /// The thread sleeps, so it runs no handler's first instructions.
    pub is_asleep: bool,
}

impl SignalState {
    /// Returns the state of a thread; `None` if it has ended.
    pub fn of(tid: i32, signal: i32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?, signal)
    }

    fn parse(status: &str, signal: i32) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let contains = |mask: &str| {
            let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
            // Bit 0 is signal 1.
            Some(mask.checked_shr(signal.cast_unsigned().saturating_sub(1)).unwrap_or(0) & 1 != 0)
        };
        Some(Self {
            is_blocked: contains(field("SigBlk:")?)?,
            is_pending: contains(field("SigPnd:")?)?,
            is_asleep: field("State:")?.trim_start().starts_with('S'),
        })
    }
}

/// Returns beginning and end of a name whose middle the VM left out: JDK 26 and later keep the first 7 bytes and the
/// last 6, because the kernel keeps 15 (`os::Linux::set_native_thread_name`, JDK 26 to 28).
fn shortened(name: &str) -> Option<(&str, &str)> {
    name.split_at_checked(7).and_then(|(begin, rest)| Some((begin, rest.strip_prefix("..")?)))
}

/// Returns the whole of a shortened name of the VM's own, with the number at its end.
fn completed(name: &str) -> Option<String> {
    let (begin, end) = shortened(name)?;
    let letters = end.trim_end_matches(|last: char| last.is_ascii_digit());
    let whole = CUT_NAMES.iter().find(|whole| whole.starts_with(begin) && whole.ends_with(letters))?;
    Some(format!("{whole}{}", &end[letters.len()..]))
}

/// Returns the lowest and one past the highest address of the stacks at these (sp, thread pointer) pairs; `None` where
/// they are unknown.
///
/// The C library puts its description of a thread at the high end of the stack it makes, inside the same mapping, so
/// all memory from sp to there stays mapped while the thread lives. The mapping is not enough: the kernel joins
/// neighbours in its list, and the part above a stack may be unmapped at any time.
/// The stack of the first thread comes from the kernel and never shrinks.
/// Other stacks (of coroutines, alternate ones) stay unknown.
/// Sources: proc_pid_maps(5), glibc `nptl/allocatestack.c`, musl `pthread_create.c`.
pub fn stacks_at(places: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
    stacks_in(&maps::read().unwrap_or_default(), places)
}

fn stacks_in(maps: &str, places: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
    let mut found = vec![None; places.len()];
    for mapping in maps::parse(maps).filter(|mapping| mapping.writable) {
        let is_first = mapping.path == "[stack]";
        for (bounds, &(sp, thread_pointer)) in found.iter_mut().zip(places) {
            if !(mapping.start..mapping.end).contains(&sp) {
                continue;
            }
            if is_first {
                *bounds = Some((mapping.start, mapping.end));
            } else if (sp..mapping.end).contains(&thread_pointer) {
                *bounds = Some((mapping.start, thread_pointer & !7));
            }
        }
    }
    found
}

/// Names of VM threads that the kernel cuts to 15 bytes, JDK 11 to 25; a number that is cut off stays unknown.
const CUT_NAMES: [&str; 7] = [
    "C1 CompilerThread",
    "C2 CompilerThread",
    "VM Periodic Task Thread",
    "Monitor Deflation Thread",
    "G1 Young RemSet Sampling",
    "Notification Thread",
    "Shenandoah Control Thread",
];

/// Returns the kind of a thread, by its name, of which the kernel keeps 15 bytes.
///
/// Names: JDK 11 to 25, `gcId`-less `WorkGang`/`WorkerThreads` names, `compileBroker.cpp`, `vmThread.cpp`.
pub fn kind_of(name: &str) -> ThreadKind {
    const COMPILER: [&str; 4] = ["C1 Compiler", "C2 Compiler", "JVMCI", "Sweeper thread"];
    const GC: [&str; 9] = [
        "GC Thread",
        "G1 ",
        "Concurrent Mark",
        "ParGC",
        "ZDriver",
        "ZWorker",
        "ZDirector",
        "Shenandoah",
        "XWorker",
    ];
    const VM: [&str; 6] =
        ["VM Thread", "VM Periodic", "Service Thread", "Monitor Defl", "Signal Dispatch", "Notification"];
    let begin = shortened(name).map(|(begin, _)| begin);
    let starts = |prefixes: &[&str]| {
        let is =
            |prefix: &&str| name.starts_with(prefix) || begin.is_some_and(|begin| prefix.starts_with(begin));
        prefixes.iter().any(is)
    };
    if starts(&COMPILER) {
        ThreadKind::Compiler
    } else if starts(&GC)
        || (name.starts_with('Z') && name.get(1..2).is_some_and(|c| c.chars().all(char::is_uppercase)))
    {
        ThreadKind::Gc
    } else if starts(&VM) {
        ThreadKind::Vm
    } else {
        ThreadKind::Native
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_signal() {
        let status = "State:\tS (sleeping)\nSigPnd:\t0000000000000002\nSigBlk:\t0000000000000004\n";
        let state = |signal| SignalState::parse(status, signal).expect("a state");
        assert_eq!(
            [state(1), state(2), state(3)].map(|state| (state.is_pending, state.is_blocked)),
            [(false, false), (true, false), (false, true)]
        );
        assert!(state(1).is_asleep);
        assert_eq!(SignalState::parse("State:\tR (running)\n", 1), None);
    }

    #[test]
    fn stacks_end_at_the_thread_pointer() {
        let maps = "1000-2000 ---p 00000000 00:00 0\n2000-9000 rw-p 00000000 00:00 0\n\
                    a000-b000 rw-p 00000000 00:00 0 [heap]\nf000-10000 rw-p 00000000 00:00 0   [stack]\n";
        let places = [
            (0x3000, 0x8f00),
            (0x3000, 0x9f00),
            (0x3000, 0x2f00),
            (0x1800, 0x8f00),
            (0xf800, 0xa100),
            (0xa100, 0xb),
        ];
        let expect = [Some((0x2000, 0x8f00)), None, None, None, Some((0xf000, 0x10000)), None];
        assert_eq!(stacks_in(maps, &places), expect);
    }

    #[test]
    fn stacks_of_this_process() {
        let local = 0_u8;
        let sp = std::ptr::from_ref(&local) as u64;
        let found = stacks_at(&[(sp, crate::handler::ucontext::thread_pointer())]);
        let (low, high) = found[0].expect("a thread of the test harness has a stack from the C library");
        assert!((low..high).contains(&sp));
    }

    #[test]
    fn kinds_by_name() {
        let cases = [
            ("C2 CompilerThre", ThreadKind::Compiler),
            ("GC Thread#3", ThreadKind::Gc),
            ("G1 Conc#0", ThreadKind::Gc),
            ("ZDriverMinor", ThreadKind::Gc),
            ("VM Periodic Tas", ThreadKind::Vm),
            ("C1 Comp..hread0", ThreadKind::Compiler),
            ("VM Peri..Thread", ThreadKind::Vm),
            ("G1 Refi..kers#0", ThreadKind::Gc),
            ("ForkJoi..rker-1", ThreadKind::Native),
            ("java", ThreadKind::Native),
            ("Zookeeper", ThreadKind::Native),
        ];
        for (name, kind) in cases {
            assert_eq!(kind_of(name), kind, "{name}");
        }
    }

    #[test]
    fn shortened_names_are_completed() {
        assert_eq!(completed("C2 Comp..hread0").as_deref(), Some("C2 CompilerThread0"));
        assert_eq!(completed("VM Peri..Thread").as_deref(), Some("VM Periodic Task Thread"));
        assert_eq!(completed("ForkJoi..rker-1"), None);
        assert_eq!(completed("VM Thread"), None);
    }
}
