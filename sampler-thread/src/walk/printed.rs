//! Stacks as text, one line a frame: `symbol+0xOFF (0xIP [module+0xOFF])`.
//!
//! Problem: a dump is read by people at once, and by tools that look addresses up; a profile keeps neither pcs nor
//! offsets.
//! Approach: the walker of the sampler thread walks copied stacks, and each frame is named on its own, with its pc.
//! Invariant: a method whose class may have been unloaded since its stack was copied is shown as `[unloaded]`; a stack
//! that was not walked to its root ends with a line that says why.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use proto::characters::shown;
use stackwalk::{Frame, Memory, Method, Missing, Place};

use crate::native::maps;
use crate::proof::unloading::Unloading;
use crate::walk::snapshot::Snapshot;
use crate::walk::stacks::StackWalker;
use crate::walk::vm::Vm;

/// Most frames of a stack.
const MOST_FRAMES: u32 = 1 << 16;
/// Frames of the C library from its system call up to abort(3).
const MOST_ABORTING: usize = 8;
/// File name of the VM's library.
const VM_LIBRARY: &str = "libjvm.so";
/// Text in place of a method that the VM may have freed.
const UNLOADED: &str = "[unloaded]";

/// Walks and prints stacks.
pub struct StackPrinter<M: Memory> {
    vm: Vm<M>,
    walker: StackWalker,
    modules: Vec<Module>,
    /// Makes a symbol readable.
    readable: fn(&str) -> Cow<'_, str>,
}

/// A mapped file.
struct Module {
    start: u64,
    end: u64,
    /// Address of the file's first byte.
    base: u64,
    name: String,
}

impl<M: Memory> StackPrinter<M> {
    /// A printer for the stacks of this process, in which symbols appear as `readable` returns them.
    pub fn new(vm: Vm<M>, unloading: Arc<Unloading>, readable: fn(&str) -> Cow<'_, str>) -> Self {
        let mut walker = StackWalker::new(unloading, Arc::default(), true, MOST_FRAMES);
        walker.begin_drain(&vm);
        walker.refresh(&vm, None);
        let mut modules = modules(&maps::read().unwrap_or_default());
        let code = vm.hotspot.code_ranges(&vm.memory).map(|(start, end)| Module {
            start,
            end,
            base: start,
            name: "code cache".to_owned(),
        });
        modules.extend(code);
        Self { vm, walker, modules, readable }
    }

    /// Returns the time stamp of this moment; a stack must be copied after it was taken.
    pub fn now(&self) -> u64 {
        self.walker.lifetime.now()
    }

    /// Appends the lines of a stack that was copied after time stamp `ticks`; returns whether it reaches its root.
    pub fn print(&mut self, snapshot: &Snapshot<'_>, ticks: u64, out: &mut String) -> bool {
        self.print_from(snapshot, ticks, |_, _| 0, out)
    }

    /// Prints the stack of the thread in which the process dies, from the function that failed on.
    /// The frames of the handler that looked at the fault, and those of abort(3), are left out.
    pub fn print_dying(&mut self, snapshot: &Snapshot<'_>, ticks: u64, out: &mut String) -> bool {
        self.print_from(snapshot, ticks, Self::failed, out)
    }

    /// Prints the frames from the one on whose place `first` returns.
    fn print_from(
        &mut self,
        snapshot: &Snapshot<'_>,
        ticks: u64,
        first: fn(&mut Self, &[Frame]) -> usize,
        out: &mut String,
    ) -> bool {
        self.walker.begin_group();
        let walk = self.walker.walk(&self.vm, snapshot, ticks);
        let all = self.walker.frames(&walk).to_vec();
        let first = first(self, &all);
        let frames = all.get(first..).unwrap_or_default();
        let mut lines: Vec<String> = frames.iter().map(|frame| self.line(frame)).collect();
        // The names were read after the copy.
        self.walker.lifetime.observe(&self.vm.memory);
        if !self.walker.lifetime.is_certain(ticks) {
            for (line, frame) in lines.iter_mut().zip(frames).filter(|(_, frame)| method_of(frame).is_some())
            {
                *line = format!("{UNLOADED} ({})", self.address(frame.place()));
            }
        }
        for line in lines.iter().filter(|line| !line.is_empty()) {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{}", shown(line));
        }
        let is_whole = walk.stop.is_complete();
        if !is_whole {
            let _ = writeln!(out, "[partial stack: {}]", walk.stop.name());
        }
        is_whole
    }

    /// Returns the place of the frame that failed: below the signal whose handler the VM's library has, or else below
    /// the newest signal, or else below abort(3).
    ///
    /// A signal's handler returns to code of the C library that ends it. That is a native frame, interrupted like the
    /// one below, but not the newest.
    fn failed(&mut self, frames: &[Frame]) -> usize {
        let is_interrupted = |frame: &Frame| matches!(frame, Frame::Native { interrupted: true, .. });
        let mut signals = Vec::new();
        let mut at = 1;
        while at < frames.len() {
            // The handler ends at this frame, and the next one is what it interrupted.
            let ends_handler = frames.get(at).is_some_and(is_interrupted);
            if ends_handler {
                signals.push(at);
            }
            at += if ends_handler { 2 } else { 1 };
        }
        let is_of_vm = |&&end: &&usize| {
            let handler = end.checked_sub(1).and_then(|handler| frames.get(handler));
            handler.is_some_and(|handler| {
                self.module(handler.place()).is_some_and(|module| module.name == VM_LIBRARY)
            })
        };
        if let Some(end) = signals.iter().rev().find(is_of_vm).or(signals.first()) {
            return end + 1;
        }
        let newest = frames.iter().take(MOST_ABORTING).enumerate();
        let native = newest
            .map_while(|(at, frame)| matches!(frame, Frame::Native { .. }).then_some((at, frame.place())));
        let abort = native.collect::<Vec<_>>().into_iter().find(|&(at, place)| {
            let inside = place.pc.0.wrapping_sub(u64::from(at > 0));
            *self.walker.libraries.name(&self.vm.memory, inside).text == *"abort"
        });
        abort.map_or(0, |(at, _)| at + 1)
    }

    /// Returns the line of a frame; empty for the VM's entry frames, whose callers are there.
    fn line(&mut self, frame: &Frame) -> String {
        let place = frame.place();
        match frame {
            Frame::Native { interrupted, .. } => self.native(place, *interrupted),
            Frame::Stub { blob, .. } => {
                let name = self.vm.stub_name(*blob);
                format!("{name} ({})", self.address(place))
            }
            Frame::Gap { missing: Missing::Native, .. } => "[native frames missing]".to_owned(),
            Frame::Gap { missing: Missing::Thawing, .. } => "[frames being thawed]".to_owned(),
            Frame::Entry { .. } => String::new(),
            _ => match method_of(frame) {
                Some((method, C2)) if self.vm.hotspot.is_c2_replaced() => self.java(frame, method, "JVMCI"),
                Some((method, kind)) => self.java(frame, method, kind),
                None => String::new(),
            },
        }
    }

    fn java(&self, frame: &Frame, method: Method, kind: &str) -> String {
        let place = self.address(frame.place());
        let Some(text) = self.vm.method_text(method) else { return format!("{UNLOADED} ({place})") };
        let bci = frame.bci().filter(|bci| bci.0 >= 0);
        let line = bci.and_then(|bci| self.vm.hotspot.line(&self.vm.memory, method, bci));
        let file = match (text.source_file.as_str(), line) {
            ("", _) => String::new(),
            (file, Some(line)) => format!("({file}:{line})"),
            (file, None) => format!("({file})"),
        };
        let bci = bci.map_or(String::new(), |bci| format!(" bci {}", bci.0));
        format!("{}.{}{file} [{kind}]{bci} ({place})", text.class_name.replace('/', "."), text.name)
    }

    fn native(&mut self, place: Place, is_interrupted: bool) -> String {
        let pc = place.pc.0;
        // A return address may belong to the next function if the call never returns.
        let inside = pc.wrapping_sub(u64::from(!is_interrupted));
        let name = self.walker.libraries.name(&self.vm.memory, inside);
        let address = self.address(place);
        match name.range.end.saturating_sub(name.range.start) {
            // A name for this address only is made of the library and the offset, which are there already.
            0 | 1 => format!("({address})"),
            _ => {
                let symbol = (self.readable)(&name.text);
                format!("{symbol}+{:#x} ({address})", pc.wrapping_sub(name.range.start))
            }
        }
    }

    /// Returns the mapped file that a pc lies in.
    fn module(&self, place: Place) -> Option<&Module> {
        self.modules.iter().find(|module| (module.start..module.end).contains(&place.pc.0))
    }

    /// Returns a pc and where it lies.
    fn address(&self, place: Place) -> String {
        let pc = place.pc.0;
        let (name, offset) = match self.module(place) {
            Some(module) => (module.name.as_str(), pc.wrapping_sub(module.base)),
            None => ("<unknown>", 0),
        };
        format!("0x{pc:016X} [{name}+{offset:#x}]")
    }
}

/// Code of the optimising compiler.
const C2: &str = "C2";

/// Returns the method of a Java frame, and how it runs.
fn method_of(frame: &Frame) -> Option<(Method, &'static str)> {
    Some(match frame {
        Frame::Interpreted { method, .. } => (*method, "interpreted"),
        Frame::Compiled { method, inlined: true, .. } => (*method, "inlined"),
        Frame::Compiled { method, level, .. } if level.is_optimised() => (*method, C2),
        Frame::Compiled { method, .. } => (*method, "C1"),
        Frame::NativeMethod { method, .. } => (*method, "native method"),
        Frame::Stub { .. } | Frame::Entry { .. } | Frame::Native { .. } | Frame::Gap { .. } => return None,
    })
}

/// Returns the executable mappings of files.
fn modules(text: &str) -> Vec<Module> {
    let mut first: Option<maps::Mapping<'_>> = None;
    let mut found = Vec::new();
    for mapping in maps::parse(text) {
        let has_file = mapping.inode != 0 || mapping.path == "[vdso]";
        if mapping.offset == 0 && has_file {
            first = Some(mapping);
        }
        let first = first.filter(|first| first.inode == mapping.inode && first.path == mapping.path);
        if let (true, Some(first)) = (mapping.executable, first) {
            let name = mapping.path.rsplit('/').next().unwrap_or_default().to_owned();
            found.push(Module { start: mapping.start, end: mapping.end, base: first.start, name });
        }
    }
    found
}
