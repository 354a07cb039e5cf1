//! Compiled code of one method: identity, entries, handlers and the bounds of its debug information.
//!
//! JDK 11 to 21 keep everything in the blob and store addresses; JDK 25 moved what never changes and what the
//! GC changes to two malloc'ed blocks and stores offsets.
//! Those blocks are freed with the nmethod and may then hold anything, so identity is compared before and after
//! a decode.
//! Sources: `code/compiledMethod.hpp` (to JDK 21), `code/nmethod.hpp`, JDK 11 to 25.

use super::code_blob::CodeBlob;
use super::layout::{CodePlace, DebugLayout, NmethodLayout};
use crate::frame::Bci;
use crate::memory::{Memory, Span, Unreadable, at};

/// Identity of one compilation: constant for its life, different from every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) method: u64,
    pub(crate) compile_id: u32,
}

impl Identity {
    pub(crate) fn read<M: Memory + ?Sized>(
        layout: &NmethodLayout,
        memory: &M,
        blob: u64,
    ) -> Result<Self, Unreadable> {
        Ok(Self {
            method: memory.read_u64(at(blob, layout.method))?,
            compile_id: memory.read_u32(at(blob, layout.compile_id))?,
        })
    }
}

/// One compilation of a method: its address, and what no other code at this address has in common with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compilation {
    pub(crate) blob: u64,
    pub(crate) identity: Identity,
}

/// Places of an nmethod's debug information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DebugInfo {
    pub(crate) pcs: Span,
    pub(crate) scopes: Span,
    pub(crate) metadata: Span,
    /// True if all of it lies in the blob.
    pub(crate) is_in_blob: bool,
}

impl DebugInfo {
    pub(crate) fn is_loaded<M: Memory + ?Sized>(&self, memory: &M) -> bool {
        self.is_in_blob || memory.is_loaded_directly(self.pcs.start, 1)
    }
}

/// Address a [`CodePlace`] means.
fn place<M: Memory + ?Sized>(memory: &M, blob: &CodeBlob, place: CodePlace) -> Result<u64, Unreadable> {
    let field_at = |offset: u32| at(blob.address, offset);
    Ok(match place {
        CodePlace::Address(offset) => memory.read_u64(field_at(offset))?,
        CodePlace::FromBlob(offset) => {
            // -1 (no handler) gives an address below the blob, which equals no pc.
            blob.address.wrapping_add_signed(i64::from(memory.read_i32(field_at(offset))?))
        }
        CodePlace::FromCode(offset) => {
            blob.code_begin.wrapping_add(u64::from(memory.read_u16(field_at(offset))?))
        }
    })
}

impl NmethodLayout {
    pub(crate) fn level<M: Memory + ?Sized>(&self, memory: &M, blob: u64) -> Result<u8, Unreadable> {
        // Levels are 0 to 4 whatever the width of the field.
        Ok(u8::try_from(self.comp_level.read(memory, blob)?).unwrap_or(u8::MAX))
    }

    /// Returns whether a return address is one of the handlers that replace return addresses on deoptimisation.
    pub(crate) fn is_deopt_handler<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: &CodeBlob,
        pc: u64,
    ) -> Result<bool, Unreadable> {
        if place(memory, blob, self.deopt)? == pc {
            return Ok(true);
        }
        match self.deopt_mh {
            Some(handler) => Ok(place(memory, blob, handler)? == pc),
            None => Ok(false),
        }
    }

    /// Address of the deoptimisation handler.
    pub(crate) fn deopt_handler<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: &CodeBlob,
    ) -> Result<u64, Unreadable> {
        place(memory, blob, self.deopt)
    }

    /// Bytes from the frame's sp to the return address that a deoptimisation handler replaced.
    pub(crate) fn orig_pc_offset<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: u64,
    ) -> Result<u32, Unreadable> {
        memory.read_u32(at(blob, self.orig_pc_offset))
    }

    /// First instruction of a call that needs no receiver check.
    pub(crate) fn verified_entry<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: &CodeBlob,
    ) -> Result<u64, Unreadable> {
        place(memory, blob, self.verified_entry)
    }

    /// Entry from a loop that was running interpreted, 0 if this code has none.
    pub(crate) fn osr_entry<M: Memory + ?Sized>(&self, memory: &M, blob: u64) -> Result<u64, Unreadable> {
        memory.read_u64(at(blob, self.osr_entry))
    }

    /// Start of the stubs that follow the main code; `None` if that is unknown.
    pub(crate) fn stubs<M: Memory + ?Sized>(&self, memory: &M, blob: &CodeBlob) -> Option<u64> {
        let offset = memory.read_u32(at(blob.address, self.stubs?)).ok()?;
        Some(at(blob.address, offset)).filter(|stubs| (blob.code_begin..blob.code_end).contains(stubs))
    }

    /// The bytecode at which the code begins: the first, or that of a loop which was running interpreted.
    pub(crate) fn entry_bci<M: Memory + ?Sized>(&self, memory: &M, blob: u64) -> Result<Bci, Unreadable> {
        Ok(Bci(memory.read_i32(at(blob, self.entry_bci))?.max(0)))
    }

    /// Returns whether entries mark the ends of ranges of instructions, beside safepoints; `pcs` is their size in
    /// bytes, two sentinels included. False if that cannot be read.
    ///
    /// Each safepoint has an entry and an oop map, each range an entry only: `DebugInformationRecorder::add_safepoint`
    /// and `add_non_safepoint` in `code/debugInfoRec.cpp`, JDK 11 to 25.
    pub(crate) fn has_ranges<M: Memory + ?Sized>(&self, memory: &M, blob: u64, pcs: u64) -> bool {
        let maps = self.oop_maps.zip(self.oop_maps_count).and_then(|(maps, count)| {
            let maps = memory.read_u64(at(blob, maps)).ok()?;
            if maps == 0 { Some(0) } else { memory.read_u32(at(maps, count)).ok() }
        });
        maps.is_some_and(|maps| pcs / self.pc_desc_size > u64::from(maps) + 2)
    }

    /// Locates the debug information; `None` if its bounds contradict each other.
    pub(crate) fn debug_info<M: Memory + ?Sized>(
        &self,
        memory: &M,
        blob: &CodeBlob,
    ) -> Result<Option<DebugInfo>, Unreadable> {
        let field_at = |offset: u32| at(blob.address, offset);
        let word = |offset: u32| memory.read_u32(field_at(offset)).map(u64::from);
        let span = |start: u64, end: u64| Span { start, end };
        let info = match self.debug {
            DebugLayout::InBlob { scopes_data, scopes_pcs, dependencies, metadata } => {
                let scopes = memory.read_u64(field_at(scopes_data))?;
                let pcs = blob.address.wrapping_add(word(scopes_pcs)?);
                DebugInfo {
                    pcs: span(pcs, blob.address.wrapping_add(word(dependencies)?)),
                    scopes: span(scopes, pcs),
                    metadata: span(blob.address.wrapping_add(word(metadata)?), scopes),
                    is_in_blob: true,
                }
            }
            DebugLayout::OutOfBlob {
                immutable_data,
                immutable_data_size,
                scopes_data,
                scopes_pcs,
                mutable_data,
                mutable_data_size,
                relocation_size,
            } => {
                let immutable = memory.read_u64(field_at(immutable_data))?;
                let mutable = memory.read_u64(field_at(mutable_data))?;
                let scopes = immutable.wrapping_add(word(scopes_data)?);
                DebugInfo {
                    pcs: span(immutable.wrapping_add(word(scopes_pcs)?), scopes),
                    scopes: span(scopes, immutable.wrapping_add(word(immutable_data_size)?)),
                    metadata: span(
                        mutable.wrapping_add(word(relocation_size)?),
                        mutable.wrapping_add(word(mutable_data_size)?),
                    ),
                    is_in_blob: false,
                }
            }
        };
        let ordered = [info.pcs, info.scopes, info.metadata].iter().all(|span| span.start <= span.end);
        Ok(Some(info).filter(|_| ordered))
    }
}
