//! The kernel's view of the threads of this process: ids, names, kinds.
//!
//! Problem: no event announces GC, compiler and native threads to an agent.
//! Approach: `/proc/self/task` lists all threads, and their names show their kind.
//! Invariant: a thread that ends meanwhile is left out.
//! Source: proc(5).

use std::fs::DirEntry;
use std::io;

use sampler_thread::characters::from_modified_utf8;
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

/// Returns the kernel's name of a thread; a cut name of a VM thread is completed.
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
    /// The thread sleeps, so it is not about to run a handler.
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

/// Returns the ends of a name without a middle: JDK 26 and later keep the first 7 and the last 6 bytes, because the
/// kernel keeps 15 (`os::Linux::set_native_thread_name`, JDK 26 to 28).
fn shortened(name: &str) -> Option<(&str, &str)> {
    name.split_at_checked(7).and_then(|(begin, rest)| Some((begin, rest.strip_prefix("..")?)))
}

/// Returns the whole name, with its number, for a shortened name of a VM thread.
fn completed(name: &str) -> Option<String> {
    let (begin, end) = shortened(name)?;
    let letters = end.trim_end_matches(|last: char| last.is_ascii_digit());
    let whole = CUT_NAMES.iter().find(|whole| whole.starts_with(begin) && whole.ends_with(letters))?;
    Some(format!("{whole}{}", &end[letters.len()..]))
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

/// Returns the kind of a thread by its name, of which the kernel keeps 15 bytes.
///
/// Sources: names of `WorkGang` and `WorkerThreads`, `compileBroker.cpp`, `vmThread.cpp`, JDK 11 to 25.
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
