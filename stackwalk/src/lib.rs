//! Stack walking for HotSpot JVMs over injected memory.
//!
//! A walk turns a [`Capture`] (registers and a few VM fields of one moment) and a copy of the thread's stack into
//! [`Frame`]s, newest first, and ends with a [`Stop`] reason. The VM's own structures are described by the tables in
//! libjvm ([`HotSpot`]), read through [`Memory`] and cached in a [`ScopeCache`].
//!
//! The same code walks a snapshot on a sampler thread, the live stack in a signal handler, another process and a
//! recorded fixture.
//! `no_std` with `alloc`. A walk allocates nothing, takes no lock, cannot fault and does not panic on garbage.
//!
//! # The user's duties
//! - [`HotSpot::read_tables`] once libjvm is loaded, [`HotSpot::start`] once the VM is initialised.
//! - Fill the capture and copy the stack at the same moment; a later copy describes another stack.
//! - Register with [`LiveMemory::add_permanent`] only memory that is never unmapped.
//! - Treat a [`Method`] as valid at the moment of the sample only: resolve it soon, expect errors.
//!
//! # Not done here
//! Unwind tables of native code, which a [`NativeCode`] provides; stacks of unmounted virtual threads; CPUs without a
//! folder in `cpu`.
//!
//! # Rooms, from the bottom up
//! - `limits`: how far a walk goes.
//! - `frame`: what a walk returns.
//! - `memory`: how memory is read: a copy of a stack, this process, with faults survived.
//! - `stop`: why a walk ends.
//! - `cpu`: the seam to the CPU: registers, instructions, shapes of frames.
//! - `capture`: the registers and VM fields of one moment.
//! - `frozen`: frames of a virtual thread that lie in the heap.
//! - `hotspot`: structures of the VM.
//! - `cache`: what walks remember of code.
//! - `walker`: the walk.
//!
//! # Examples
//! `examples/recorded_stack.rs` prints the stacks of a JVM that was recorded: `cargo run -p stackwalk --example
//! recorded_stack`.
//!
//! Memory that holds no VM gives an error with the reason.
//! ```
//! use stackwalk::{HotSpot, LayoutError, StackCopy};
//!
//! let bytes = [0; 64];
//! let memory = StackCopy::new(0x1000, &bytes);
//! let error = HotSpot::read_tables(|_name| None, &memory).unwrap_err();
//! assert_eq!(error, LayoutError::MissingSymbol("gHotSpotVMStructs"));
//! ```
#![no_std]
#![deny(unsafe_code)]

// For the memory of a cache.
extern crate alloc;
#[cfg(test)]
extern crate std;

mod cache;
mod capture;
mod cpu;
mod frame;
mod frozen;
mod hotspot;
mod limits;
mod memory;
mod stop;
mod walker;

pub use cache::{CacheStats, ScopeCache};
pub use capture::{CAPTURE_BYTES, Capture};
pub use cpu::{
    DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER, FRAME_RECORD_BYTES, PreservedRegisters,
    RETURNS_BY_REGISTER, Registers, return_address,
};
pub use frame::{Bci, Blob, CompileLevel, Frame, Method, Missing, Pc, Place};
pub use frozen::Frozen;
pub use hotspot::class_loader::LoadedBy;
pub use hotspot::committed::{Committed, RegionState, Regions, Space};
pub use hotspot::continuation::{
    CHUNK_FIELD_BYTES, ChunkBottom, ChunkClass, FrozenOffsets, NameClass, NameOffsets,
};
pub use hotspot::flags::JvmFlag;
pub use hotspot::metadata::Class;
pub use hotspot::method::{MethodError, MethodNames, Symbol};
pub use hotspot::mounted::MountedOffsets;
pub use hotspot::objects::{COLOUR_BITS, CollectedHeap, Colours, FORWARDED, Objects, Shifted};
pub use hotspot::perf_memory::PerfCounter;
pub use hotspot::thread::{CompilerOffsets, JavaThreads, ThreadOffsets};
pub use hotspot::vm_structs::VmSymbols;
pub use hotspot::{HotSpot, LayoutError};
pub use limits::{Limits, MAX_CHUNKS};
pub use memory::live::{Access, LiveMemory};
pub use memory::read_cache::{CachedMemory, ReadCache};
pub use memory::safe_fetch::{Choice, LoadWord, SafeFetch};
pub use memory::{Memory, StackCopy, Unreadable};
pub use stop::Stop;
pub use walker::native_code::{NativeCode, NativeRegisters, NativeStop, ends_signal_handler};
pub use walker::{Frames, Group, Walker};
