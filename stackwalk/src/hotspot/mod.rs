//! Facts about a HotSpot VM that the walker needs: offsets from its tables, bounds of its code, its version.
//!
//! Two steps, because the layout can be read before the VM has started: [`HotSpot::read_tables`] works
//! as soon as libjvm is loaded (in `Agent_OnLoad`), [`HotSpot::start`] needs an initialised VM.
//! `design/hotspot.md` lists the structures by JDK and the walking rules.
//! Sources: OpenJDK `hotspot/share/{code,runtime,oops,interpreter}` and `hotspot/cpu/x86` of JDK 11u, 17u, 21u, 25u.

pub(crate) mod anchor;
mod archive;
pub(crate) mod class_loader;
pub(crate) mod code_blob;
pub(crate) mod code_cache;
pub(crate) mod committed;
pub(crate) mod continuation;
pub(crate) mod debug_bytes;
mod flag_names;
pub(crate) mod flags;
mod heap_layout;
pub(crate) mod interpreter;
mod layout;
mod layout_error;
pub(crate) mod metadata;
pub(crate) mod method;
pub(crate) mod mounted;
pub(crate) mod nmethod;
pub(crate) mod objects;
mod offsets;
pub(crate) mod pc_desc;
pub(crate) mod perf_memory;
mod rows;
pub(crate) mod scope_desc;
pub(crate) mod thread;
pub(crate) mod unsigned5;
pub(crate) mod vm_structs;

use crate::frame::{Bci, Blob, Method, Pc};
use crate::memory::{Memory, Unreadable, at, read_c_string};
use crate::stop::Stop;
use code_blob::CodeBlob;
use code_cache::CodeCache;
use debug_bytes::{Windowed, Windows};
use flag_names::FlagNames;
use layout::Layout;
use pc_desc::{PcMatch, find_scope};
use scope_desc::{Scope, decode};
use unsigned5::Unsigned5;
use vm_structs::VmSymbols;

pub use layout_error::LayoutError;

/// State that is known only after the VM has started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) code_cache: CodeCache,
    pub(crate) interpreter: (u64, u64),
    pub(crate) call_stub_return: u64,
    /// True if a compiler of JVMCI stands in the place of C2 (`compiler/compilerDefinitions.hpp`: both have level 4).
    pub(crate) is_c2_replaced: bool,
    /// The return barrier, the return address below which frames are frozen; in the tables from JDK 27 on, else found
    /// by its code.
    pub(crate) continuation_barrier: Option<u64>,
}

/// One VM's layout; made once, shared by all walks.
#[derive(Debug)]
pub struct HotSpot {
    pub(crate) layout: Layout,
    pub(crate) unsigned5: Unsigned5,
    flag_names: FlagNames,
    jdk_major: u32,
    started: Option<Started>,
}

impl HotSpot {
    /// Checks that a library has the tables of a VM; `lookup` gives the address of a symbol that it exports.
    ///
    /// # Errors
    /// [`LayoutError::MissingSymbol`], [`LayoutError::Unreadable`].
    pub fn find_tables<M: Memory + ?Sized>(
        lookup: impl FnMut(&str) -> Option<u64>,
        memory: &M,
    ) -> Result<(), LayoutError> {
        VmSymbols::lookup(lookup, memory).map(drop)
    }

    /// Reads the VM's tables; `lookup` gives the address of a symbol exported by libjvm.
    ///
    /// # Errors
    /// [`LayoutError`] names what is missing.
    pub fn read_tables<M: Memory + ?Sized>(
        lookup: impl FnMut(&str) -> Option<u64>,
        memory: &M,
    ) -> Result<Self, LayoutError> {
        let symbols = VmSymbols::lookup(lookup, memory)?;
        let layout = Layout::read(&symbols, memory)?;
        let jdk_major = memory.read_u32(layout.vm_major)?;
        let flag_names = FlagNames::read(layout.flag, memory);
        Ok(Self { layout, unsigned5: Unsigned5::of_jdk(jdk_major), flag_names, jdk_major, started: None })
    }

    /// Reads the state that the VM fills in while it starts: [`HotSpot::read_started`],
    /// [`HotSpot::find_continuations`].
    ///
    /// # Errors
    /// [`LayoutError::NotStarted`] if it is called too early; it may then be called again.
    pub fn start<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), LayoutError> {
        self.read_started(memory)?;
        self.find_continuations(memory);
        Ok(())
    }

    /// Reads code heaps, interpreter, call stub and version.
    ///
    /// # Errors
    /// [`LayoutError::NotStarted`] if it is called too early; it may then be called again.
    pub fn read_started<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), LayoutError> {
        let frame = &self.layout.frame;
        self.jdk_major = memory.read_u32(self.layout.vm_major)?;
        self.unsigned5 = Unsigned5::of_jdk(self.jdk_major);
        let queue = memory.read_u64(frame.interpreter_code)?;
        let call_stub_return = memory.read_u64(frame.call_stub_return)?;
        if queue == 0 || call_stub_return == 0 {
            return Err(LayoutError::NotStarted);
        }
        let begin = memory.read_u64(at(queue, frame.queue_buffer))?;
        let size = memory.read_u32(at(queue, frame.queue_limit))?;
        let continuation_barrier = match frame.continuation_barrier {
            Some(variable) => Some(memory.read_u64(variable)?).filter(|&address| address != 0),
            None => None,
        };
        self.started = Some(Started {
            code_cache: CodeCache::read(&self.layout.code_heap, memory)?,
            interpreter: (begin, at(begin, size)),
            call_stub_return,
            is_c2_replaced: self.bool_flag(memory, "UseJVMCICompiler") == Some(true),
            continuation_barrier,
        });
        Ok(())
    }

    /// Finds the code of continuations; reads the heads of all blobs and the code of stubs, so that code heaps should
    /// be readable directly by then.
    pub fn find_continuations<M: Memory + ?Sized>(&mut self, memory: &M) {
        if self.has_continuations()
            && let Some((barrier, cont_entry)) = self.find_barrier(memory)
        {
            self.layout.thread.cont_entry.get_or_insert(cont_entry);
            if let Some(started) = &mut self.started {
                started.continuation_barrier.get_or_insert(barrier);
            }
        }
    }

    /// Returns whether code of the optimising compiler is that of a compiler of JVMCI, such as Graal, and not C2's.
    #[must_use]
    pub fn is_c2_replaced(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.is_c2_replaced)
    }

    /// Gives one field a wrong offset, as an unknown VM build could have: for tests of the checks that detect it.
    pub fn break_layout(&mut self) {
        let method = &mut self.layout.method;
        method.name_index = method.signature_index;
    }

    /// Feature release of the VM: 11, 17, 21, 25.
    #[must_use]
    pub fn jdk_major(&self) -> u32 {
        self.jdk_major
    }

    /// Returns whether this release has virtual threads, as a preview from JDK 19 on.
    pub(crate) fn has_continuations(&self) -> bool {
        self.jdk_major >= 19
    }

    /// Memory that is never unmapped while the VM lives: committed code, its segment maps and where the VM keeps their
    /// ends, as (start, end).
    ///
    /// The former grow; a later call returns larger ranges with the same starts. Empty before the VM has started.
    pub fn code_ranges<M: Memory + ?Sized>(&self, memory: &M) -> impl Iterator<Item = (u64, u64)> + use<M> {
        let ranges =
            self.started.as_ref().map(|started| started.code_cache.ranges(&self.layout.code_heap, memory));
        ranges.into_iter().flatten().flatten().flatten()
    }

    /// Returns whether the address lies in memory reserved for code.
    #[must_use]
    pub fn is_code(&self, address: u64) -> bool {
        self.started.as_ref().is_some_and(|started| started.code_cache.contains(address))
    }

    /// The address of a piece of VM code's name.
    ///
    /// # Errors
    /// [`Unreadable`] if the blob is gone.
    pub fn blob_name_address<M: Memory + ?Sized>(&self, memory: &M, blob: Blob) -> Result<u64, Unreadable> {
        memory.read_u64(blob.0.wrapping_add(u64::from(self.layout.blob.name)))
    }

    /// Copies the name of a piece of VM code; returns its length, cut at the size of `into`.
    ///
    /// # Errors
    /// [`Unreadable`] if the blob or its name is gone.
    pub fn blob_name<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: Blob,
        into: &mut [u8],
    ) -> Result<usize, Unreadable> {
        read_c_string(memory, self.blob_name_address(memory, blob)?, into)
    }

    /// The piece of VM code that holds `pc`.
    ///
    /// # Errors
    /// [`Stop::NativeCode`] outside the code cache, [`Stop::UnknownCode`] where no code is in use.
    pub fn blob_at<M: Memory + ?Sized>(&self, memory: &M, pc: Pc) -> Result<Blob, Stop> {
        let started = self.started.as_ref().ok_or(Stop::NotStarted)?;
        started.code_cache.find_blob(&self.layout.code_heap, memory, pc.0).map(Blob)
    }

    /// Returns whether `pc` is the return address of a call in compiled code, by the code's `PcDesc` table.
    pub fn is_listed_call<M: Memory + ?Sized>(&self, memory: &M, pc: Pc) -> bool {
        self.with_scope(memory, pc, PcMatch::Exact, |_, _| Some(())).is_some()
    }

    /// Calls `emit` for each method inlined at the instruction at `pc` of compiled code, innermost first; returns false
    /// if the code does not say. A walk reports the instruction before an interrupted one; AsyncGetCallTrace reports
    /// this one (`is_decipherable_compiled_frame` in `prims/forte.cpp`, JDK 11 to 25).
    pub fn methods_at_instruction<M: Memory + ?Sized>(
        &self,
        memory: &M,
        pc: Pc,
        mut emit: impl FnMut(Method, Bci),
    ) -> bool {
        let decoded = self.with_scope(memory, pc, PcMatch::Interrupted, |bytes, scope| {
            decode(self.unsigned5, bytes, scope, |Scope { method, bci }| {
                emit(method, bci.unwrap_or(Bci(-1)));
                Ok(())
            })
            .ok()
        });
        decoded.is_some()
    }

    /// Calls `read` with the debug information of the compiled code at `pc` and the scope offset there.
    fn with_scope<M: Memory + ?Sized, R>(
        &self,
        memory: &M,
        pc: Pc,
        matched: PcMatch,
        read: impl FnOnce(&mut Windowed<'_, M>, u32) -> Option<R>,
    ) -> Option<R> {
        let blob = self.blob_at(memory, pc).ok()?;
        let blob = CodeBlob::read(&self.layout.blob, memory, None, blob.0, pc.0).ok()?;
        let debug = self.layout.nmethod.debug_info(memory, &blob).ok()??;
        let mut windows = Windows::EMPTY;
        let mut bytes = Windowed::new(memory, &mut windows, &debug);
        let found = find_scope(&self.layout.nmethod, &mut bytes, blob.code_begin, pc.0, matched).ok()??;
        read(&mut bytes, found.offset)
    }

    pub(crate) fn started(&self) -> Option<&Started> {
        self.started.as_ref()
    }
}
