//! Starts JVMs, reads their memory and stops their threads.

#![allow(dead_code)]

pub mod fixture;
pub mod frozen;
pub mod synthetic;
pub mod walks;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use stackwalk::{Capture, HotSpot, Memory, Registers, Unreadable};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, IoSliceMut};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Memory of another process.
pub struct RemoteMemory(pub Pid);

impl Memory for RemoteMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let remote = RemoteIoVec { base: address as usize, len: into.len() };
        let length = into.len();
        match process_vm_readv(self.0, &mut [IoSliceMut::new(into)], &[remote]) {
            Ok(read) if read == length => Ok(()),
            _ => Err(Unreadable(address)),
        }
    }
}

/// A JDK under test.
pub struct Jdk {
    /// Name of its folder: `25`, `28-sid`.
    pub name: String,
    /// Feature release, the first number of the name.
    pub major: u32,
    pub home: PathBuf,
}

/// Returns the pinned builds 11, 17, 21 and 25, or those named by TICKWALK_JDK (`28-sid,25-trixie`, or `all`).
/// Prints a note and returns none if TICKWALK_JDKS is unset.
pub fn jdks() -> Vec<Jdk> {
    let Ok(folder) = std::env::var("TICKWALK_JDKS") else {
        eprintln!("SKIPPED: set TICKWALK_JDKS to a folder with JAVA_HOMEs named 11, 17, 21, 25");
        return Vec::new();
    };
    let selection = std::env::var("TICKWALK_JDK").unwrap_or("11,17,21,25".to_owned());
    let mut names: Vec<String> = match selection.as_str() {
        "all" => std::fs::read_dir(&folder)
            .expect("TICKWALK_JDKS is a folder")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect(),
        names => names.split(',').map(str::to_owned).collect(),
    };
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let home = Path::new(&folder).join(&name);
        let digits = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
        let major = name[..digits].parse().expect("a JDK's name begins with its release");
        if home.join("bin/java").exists() {
            found.push(Jdk { name, major, home });
        } else {
            eprintln!("SKIPPED: no JDK {name} in {folder}");
        }
    }
    found
}

/// Compiles a workload of `tests/workloads` for the oldest JDK; returns the folder with its classes.
pub fn compile(workload: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads").join(workload);
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join(workload);
    let status = Command::new("javac")
        .args(["-nowarn", "--release", "11", "-d"])
        .arg(&classes)
        .arg(source)
        .stderr(Stdio::null())
        .status()
        .expect("javac runs");
    assert!(status.success(), "javac failed");
    classes
}

/// Options with which the workload `Values` runs.
pub const VALUE_CLASSES: [&str; 3] = [
    "--enable-preview",
    "-XX:CompileCommand=exclude,Values::interpreted*",
    "-XX:CompileCommand=dontinline,Values*::*",
];

/// Compiles a workload with preview features, by the compiler of the JDK that will run it; returns the folder with
/// its classes.
pub fn compile_preview(home: &Path, workload: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads").join(workload);
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join(workload);
    // A JDK image without bin/javac may still have its module.
    let status = Command::new(home.join("bin/java"))
        .args([
            "-m",
            "jdk.compiler/com.sun.tools.javac.Main",
            "-nowarn",
            "--enable-preview",
            "-source",
            "28",
            "-d",
        ])
        .arg(&classes)
        .arg(source)
        .stderr(Stdio::null())
        .status()
        .expect("java runs");
    assert!(status.success(), "javac failed");
    classes
}

/// A JVM that runs a workload; dropping it kills the JVM.
pub struct Jvm {
    child: Child,
    pub home: PathBuf,
    /// Text that the workload printed before it was ready.
    pub printed: Vec<String>,
}

impl Jvm {
    /// Starts `main` and waits until it prints `ready`.
    pub fn start(home: &Path, flags: &[&str], classes: &Path, main: &str) -> Self {
        let mut child = Command::new(home.join("bin/java"))
            .args(flags)
            .arg("-cp")
            .arg(classes)
            .arg(main)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java runs");
        let output = child.stdout.take().expect("piped");
        let mut ready = false;
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let printed = lines.take_while(|line| {
            ready = line == "ready";
            !ready
        });
        let printed = printed.collect();
        assert!(ready, "the workload ended early");
        Self { child, home: home.to_owned(), printed }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn memory(&self) -> RemoteMemory {
        RemoteMemory(self.pid())
    }

    /// Returns the addresses of libjvm's exported symbols.
    pub fn symbols(&self) -> HashMap<String, u64> {
        exported_symbols(self.pid())
    }

    /// Reads the VM's tables and state.
    pub fn hotspot(&self) -> HotSpot {
        let symbols = exported_symbols(self.pid());
        let memory = self.memory();
        let mut hotspot =
            HotSpot::read_tables(|name| symbols.get(name).copied(), &memory).expect("tables are complete");
        hotspot.start(&memory).expect("the VM has started");
        hotspot
    }

    /// Returns the JVM's thread dump.
    pub fn thread_dump(&self) -> String {
        // A JDK image without bin/jstack still has its module.
        let output = Command::new(self.home.join("bin/java"))
            .args(["-m", "jdk.jcmd/sun.tools.jstack.JStack"])
            .arg(self.pid().to_string())
            .output()
            .expect("jstack runs");
        String::from_utf8(output.stdout).expect("a dump is text")
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the addresses of the symbols exported by the libjvm of a process.
fn exported_symbols(pid: Pid) -> HashMap<String, u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("own child");
    let line = maps.lines().find(|line| line.ends_with("libjvm.so")).expect("libjvm is mapped");
    let base = u64::from_str_radix(line.split('-').next().expect("a range"), 16).expect("hexadecimal");
    let path = line.split_whitespace().last().expect("a path");
    dynamic_symbols(&std::fs::read(path).expect("libjvm is readable"))
        .into_iter()
        .map(|(name, value)| (name, base + value))
        .collect()
}

/// Returns the defined symbols in `.dynsym` of a 64-bit ELF file.
fn dynamic_symbols(file: &[u8]) -> Vec<(String, u64)> {
    let number = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&file[at..at + size]);
        u64::from_le_bytes(bytes)
    };
    let (sections, entry, count) = (number(40, 8) as usize, number(58, 2) as usize, number(60, 2) as usize);
    let section =
        |index: usize, field: usize, size: usize| number(sections + index * entry + field, size) as usize;
    const SHT_DYNSYM: usize = 11;
    let table = (0..count).find(|&index| section(index, 4, 4) == SHT_DYNSYM).expect("a .dynsym");
    let strings = section(section(table, 40, 4), 24, 8);
    let (start, size) = (section(table, 24, 8), section(table, 32, 8));
    (start..start + size)
        .step_by(24)
        .filter(|&at| number(at + 6, 2) != 0)
        .map(|at| {
            let name = &file[strings + number(at, 4) as usize..];
            let end = name.iter().position(|&byte| byte == 0).expect("terminated");
            (String::from_utf8_lossy(&name[..end]).into_owned(), number(at + 8, 8))
        })
        .collect()
}

/// Registers, VM fields and stack of one thread, taken while it was stopped.
pub struct Snapshot {
    pub capture: Capture,
    pub stack: Vec<u8>,
}

/// Stops one thread, takes a snapshot, calls `while_stopped` with it and resumes the thread.
pub fn with_stopped<T>(
    hotspot: &HotSpot,
    memory: &RemoteMemory,
    thread: u64,
    tid: u32,
    while_stopped: impl FnOnce(&Snapshot) -> T,
) -> Option<T> {
    let tid = Pid::from_raw(tid as i32);
    ptrace::seize(tid, ptrace::Options::empty()).ok()?;
    ptrace::interrupt(tid).expect("seized");
    waitpid(tid, Some(WaitPidFlag::__WALL)).expect("stops");
    let snapshot = snapshot(hotspot, memory, thread, tid);
    let result = snapshot.as_ref().map(while_stopped);
    ptrace::detach(tid, None).expect("stopped");
    result
}

/// The flag by which ptrace steps; code that saves and restores flags would keep it set.
const TRAP_FLAG: u64 = 0x100;

/// Stops one thread and steps it by single instructions, calling `each` after every one; delivers its signals.
///
/// Ends after `steps` instructions or when `each` breaks. Kills the JVM afterwards: flags saved while stepping may
/// trap at any time.
pub fn step_through(
    hotspot: &HotSpot,
    memory: &RemoteMemory,
    thread: u64,
    tid: u32,
    steps: u32,
    mut each: impl FnMut(&Snapshot) -> ControlFlow<()>,
) {
    let tid = Pid::from_raw(tid as i32);
    if ptrace::seize(tid, ptrace::Options::empty()).is_err() {
        return;
    }
    ptrace::interrupt(tid).expect("seized");
    waitpid(tid, Some(WaitPidFlag::__WALL)).expect("stops");
    let mut signal = None;
    for _ in 0..steps {
        ptrace::step(tid, signal).expect("stopped");
        signal = match waitpid(tid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => None,
            Ok(WaitStatus::Stopped(_, other)) => Some(other),
            Ok(WaitStatus::PtraceEvent(..)) => None,
            status => panic!("after a step: {status:?}"),
        };
        let mut registers = ptrace::getregs(tid).expect("stopped");
        if registers.eflags & TRAP_FLAG != 0 {
            registers.eflags &= !TRAP_FLAG;
            ptrace::setregs(tid, registers).expect("stopped");
        }
        if let Some(snapshot) = snapshot(hotspot, memory, thread, tid)
            && each(&snapshot).is_break()
        {
            break;
        }
    }
    nix::sys::signal::kill(memory.0, Signal::SIGKILL).expect("own child");
    // The traced thread must be reaped before its process.
    while !matches!(waitpid(tid, Some(WaitPidFlag::__WALL)), Ok(WaitStatus::Signaled(..)) | Err(_)) {}
}

fn snapshot(hotspot: &HotSpot, memory: &RemoteMemory, thread: u64, tid: Pid) -> Option<Snapshot> {
    let registers = ptrace::getregs(tid).ok()?;
    let offsets = hotspot.thread_offsets();
    let word = |offset: u32| memory.read_u64(thread + u64::from(offset)).ok();
    let stack_high = word(offsets.stack_base)?;
    let sp = registers.rsp;
    let anchor_sp = word(offsets.anchor_sp)?;
    // The slot below an anchor's sp may hold its pc; it is above the interrupted sp.
    let stack_low = sp & !7;
    let mut stack = vec![0; usize::try_from(stack_high.checked_sub(stack_low)?).ok()?];
    memory.read(stack_low, &mut stack).ok()?;
    let record = word(offsets.vframe_array_head)?;
    let replacing = |offset: u32| match record {
        0 => 0,
        record => memory.read_u64(record + u64::from(offset)).unwrap_or(0),
    };
    let capture = Capture {
        pc: registers.rip,
        sp,
        fp: registers.rbp,
        registers: Registers {
            rax: registers.rax,
            rbx: registers.rbx,
            rcx: registers.rcx,
            rdx: registers.rdx,
            rsi: registers.rsi,
            rdi: registers.rdi,
            r8: registers.r8,
            r9: registers.r9,
            r10: registers.r10,
            r11: registers.r11,
            r12: registers.r12,
            r13: registers.r13,
            r14: registers.r14,
            r15: registers.r15,
        },
        thread,
        thread_state: u64::from(memory.read_u32(thread + u64::from(offsets.state)).ok()?),
        anchor_sp,
        anchor_pc: word(offsets.anchor_pc)?,
        anchor_fp: word(offsets.anchor_fp)?,
        deoptimized_sp: replacing(offsets.deoptimized_sp),
        deoptimized_pc: replacing(offsets.deoptimized_sp + 8),
        cont_entry: offsets.cont_entry.and_then(word).unwrap_or(0),
        stack_low,
        stack_high,
        saved_exception_pc: offsets.saved_exception_pc.and_then(word).unwrap_or(0),
    };
    Some(Snapshot { capture, stack })
}

/// Waits until the thread `name` of a process has used `ns` of CPU time.
///
/// # Panics
/// If it has not after a minute.
pub fn wait_for_cpu(pid: Pid, name: &str, ns: u64) {
    let used = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let read = |folder: &Path, file| std::fs::read_to_string(folder.join(file)).ok();
        let folder = tasks
            .filter_map(|task| Some(task.ok()?.path()))
            .find(|folder| read(folder, "comm").is_some_and(|comm| comm.trim() == name))?;
        read(&folder, "schedstat")?.split(' ').next()?.parse::<u64>().ok()
    };
    let begin = Instant::now();
    while used().is_none_or(|used| used < ns) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{name} runs");
        pause(10);
    }
}

/// Waits for `milliseconds`, where a stop at an arbitrary moment is intended and no event exists to wait for.
pub fn pause(milliseconds: u16) {
    let _ = nix::poll::poll(&mut [], milliseconds);
}
