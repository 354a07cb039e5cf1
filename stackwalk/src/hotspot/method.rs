//! Names, flags and line numbers of a method, read from the VM's structures.
//!
//! `Method` -> `ConstMethod` (indexes, bytecodes, line table) -> `ConstantPool` (names, holder) -> `Klass`
//! (class name) -> `Symbol` (length and modified UTF-8 bytes, not terminated).
//! A `Method*` from an old stack copy may point to freed or reused memory, so each step checks the VM's
//! guarantees: alignment, index below the pool's length, a non-empty name without NUL.
//! The line table follows the bytecodes: a byte packs 5 bits of bci and 3 bits of line, 0xFF announces two
//! signed UNSIGNED5 numbers instead, 0 ends it.
//! Sources: `oops/{method,constMethod,constantPool,symbol,klass}.hpp`, `code/compressedStream`, JDK 11 to 25.

use super::HotSpot;
use super::layout::SourceFileIndex;
use super::unsigned5::{MAX_BYTES, Unsigned5};
use crate::frame::{Bci, Method};
use crate::limits::MAX_LINE_ENTRIES;
use crate::memory::{Block, Memory, Span, Unreadable, Window, at, read_within_page};

/// Address of a `Symbol`: a string of modified UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Symbol(pub u64);

/// Reason why the names of a `Method*` could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MethodError {
    /// Memory at this address was needed and could not be read.
    Unreadable(u64),
    /// A pointer that must be aligned and non-null is not.
    BadPointer(u64),
    /// A constant pool index (low half) is not below the pool's length (high half).
    BadIndex(u64),
    /// The symbol at this address is empty or contains a NUL byte.
    BadSymbol(u64),
}

impl From<Unreadable> for MethodError {
    fn from(Unreadable(address): Unreadable) -> Self {
        Self::Unreadable(address)
    }
}

impl core::fmt::Display for MethodError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unreadable(address) => write!(out, "memory at {address:#x} cannot be read"),
            Self::BadPointer(address) => write!(out, "{address:#x} is not a pointer to metadata"),
            Self::BadIndex(index) => {
                write!(out, "constant pool index and length {index:#x}: the index is not below the length")
            }
            Self::BadSymbol(address) => write!(out, "there is no symbol at {address:#x}"),
        }
    }
}

impl core::error::Error for MethodError {}

/// Names and flags of a method; strings are read with [`HotSpot::read_symbol`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodNames {
    /// Class in internal form (`java/lang/Thread`); hidden classes end in `+0x` and an address.
    pub class: Symbol,
    pub name: Symbol,
    /// Descriptor (`(I)V`).
    pub signature: Symbol,
    /// Source file name, if the class has one.
    pub source_file: Option<Symbol>,
    /// Access flags of the class file format.
    pub modifiers: u16,
    /// True if the VM hides the method from Java stack traces (method handle plumbing).
    pub hidden: bool,
}

impl MethodNames {
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.modifiers & 0x0100 != 0
    }
}

/// `Method::_flags` bit of hidden methods in JDK 11 and 17 (`Method::_hidden`); in no table.
const HIDDEN_IN_METHOD: u64 = 1 << 3;

/// `ConstMethodFlags` bit of hidden methods from JDK 21 on (`is_hidden`); in no table.
const HIDDEN_IN_CONST_METHOD: u64 = 1 << 12;

/// Bytes of a symbol fetched with its length; most names are shorter.
const FIRST_SYMBOL_BYTES: usize = 96;
/// The same where bytes are loaded directly, so that a second read costs nothing; names of methods are shorter.
const LOADED_SYMBOL_BYTES: usize = 24;
/// Bytes of a line table that are read at once where they are loaded directly.
const LOADED_LINES: usize = 32;

pub(super) fn pointer(address: u64) -> Result<u64, MethodError> {
    if address == 0 || !address.is_multiple_of(8) {
        return Err(MethodError::BadPointer(address));
    }
    Ok(address)
}

/// Reads the pointer at `address`.
pub(super) fn follow<M: Memory + ?Sized>(memory: &M, address: u64) -> Result<u64, MethodError> {
    pointer(memory.read_u64(address)?)
}

impl HotSpot {
    /// The `ConstMethod` of a method.
    pub(super) fn const_method<M: Memory + ?Sized>(
        &self,
        memory: &M,
        method: Method,
    ) -> Result<u64, MethodError> {
        follow(memory, at(pointer(method.0)?, self.layout.method.const_method))
    }

    pub(super) fn pool<M: Memory + ?Sized>(&self, memory: &M, method: Method) -> Result<u64, MethodError> {
        follow(memory, at(self.const_method(memory, method)?, self.layout.method.constants))
    }

    /// Finds the names of a method.
    ///
    /// # Errors
    /// [`MethodError`] if `method` is not a method.
    pub fn method<M: Memory + ?Sized>(&self, memory: &M, method: Method) -> Result<MethodNames, MethodError> {
        let layout = &self.layout.method;
        let const_method = self.const_method(memory, method)?;
        let pool = follow(memory, at(const_method, layout.constants))?;
        let holder = follow(memory, at(pool, layout.pool_holder))?;
        let pool_length = memory.read_u32(at(pool, layout.pool_length))?;
        let symbol_of = |pool: u64, pool_length: u32, index: u16| -> Result<Symbol, MethodError> {
            if u32::from(index) >= pool_length {
                return Err(MethodError::BadIndex(u64::from(pool_length) << 32 | u64::from(index)));
            }
            let slot = pool.wrapping_add(layout.pool_header).wrapping_add(u64::from(index) * 8);
            Ok(Symbol(follow(memory, slot)?))
        };
        let symbol = |index| symbol_of(pool, pool_length, index);
        let source_file_index = match layout.source_file {
            Some(SourceFileIndex::Pool(offset)) => memory.read_u16(at(pool, offset))?,
            Some(SourceFileIndex::Klass(offset)) => memory.read_u16(at(holder, offset))?,
            None => 0,
        };
        let hidden = match layout.flags {
            Some(flags) => flags.read(memory, method.0)? & HIDDEN_IN_METHOD != 0,
            None => layout.const_method_flags.read(memory, const_method)? & HIDDEN_IN_CONST_METHOD != 0,
        };
        let source_file = match layout.klass_constants {
            _ if source_file_index == 0 => None,
            // A method handle linker has a pool of its own with three entries, but the index is copied from the
            // pool of its class (`Method::make_method_handle_intrinsic`, `ConstantPool::copy_fields`).
            Some(constants) if u32::from(source_file_index) >= pool_length => {
                let pool = follow(memory, at(holder, constants))?;
                let pool_length = memory.read_u32(at(pool, layout.pool_length))?;
                Some(symbol_of(pool, pool_length, source_file_index)?)
            }
            _ => Some(symbol(source_file_index)?),
        };
        Ok(MethodNames {
            class: Symbol(follow(memory, at(holder, layout.klass_name))?),
            name: symbol(memory.read_u16(at(const_method, layout.name_index))?)?,
            signature: symbol(memory.read_u16(at(const_method, layout.signature_index))?)?,
            source_file,
            // The flags of the class file are the low half; older JDKs keep VM flags above.
            modifiers: (layout.access_flags.read(memory, method.0)? & 0xffff) as u16,
            hidden,
        })
    }

    /// The addresses of a method's name and descriptor, which the VM shares between methods.
    pub(crate) fn name_and_descriptor<M: Memory + ?Sized>(
        &self,
        memory: &M,
        method: Method,
    ) -> Result<(Symbol, Symbol), MethodError> {
        let layout = &self.layout.method;
        let const_method = self.const_method(memory, method)?;
        let pool = follow(memory, at(const_method, layout.constants))?;
        let symbol = |index: u32| -> Result<Symbol, MethodError> {
            let index = memory.read_u16(at(const_method, index))?;
            let slot = pool.wrapping_add(layout.pool_header).wrapping_add(u64::from(index) * 8);
            Ok(Symbol(follow(memory, slot)?))
        };
        Ok((symbol(layout.name_index)?, symbol(layout.signature_index)?))
    }

    /// Copies a symbol's bytes; returns the symbol's length, which may exceed the size of `into`.
    ///
    /// # Errors
    /// [`MethodError`] if there is no symbol at that address.
    pub fn read_symbol<M: Memory + ?Sized>(
        &self,
        memory: &M,
        symbol: Symbol,
        into: &mut [u8],
    ) -> Result<usize, MethodError> {
        let layout = &self.layout.method;
        let bad = MethodError::BadSymbol(symbol.0);
        let body = layout.symbol_body as usize;
        let mut block = [0; FIRST_SYMBOL_BYTES];
        let first = match memory.is_loaded_directly(symbol.0, FIRST_SYMBOL_BYTES) {
            true => LOADED_SYMBOL_BYTES,
            false => FIRST_SYMBOL_BYTES,
        };
        let read = read_within_page(memory, symbol.0, body, block.get_mut(..first).ok_or(bad)?)?;
        let length = crate::memory::field(&block, layout.symbol_length).map(u16::from_ne_bytes);
        let length = usize::from(length.filter(|&length| length != 0).ok_or(bad)?);
        let copied = into.get_mut(..length.min(into.len())).ok_or(bad)?;
        let first = block.get(body..read).unwrap_or_default();
        let (near, far) = copied.split_at_mut(first.len().min(copied.len()));
        near.copy_from_slice(first.get(..near.len()).ok_or(bad)?);
        if !far.is_empty() {
            memory.read(symbol.0.wrapping_add((body + near.len()) as u64), far)?;
        }
        if copied.contains(&0) {
            return Err(bad);
        }
        Ok(length)
    }

    /// Source line of a bytecode, if the method has line numbers.
    pub fn line<M: Memory + ?Sized>(&self, memory: &M, method: Method, bci: Bci) -> Option<u16> {
        // A frame that has not begun its first bytecode belongs to the method's first line.
        self.line_table(memory, method)?.find(bci.0.max(0))
    }

    /// Calls `emit` with first bytecode and line of each entry of a method's line table, in the order of the table,
    /// until it returns false; returns false if there is no table.
    pub fn lines<M: Memory + ?Sized>(
        &self,
        memory: &M,
        method: Method,
        mut emit: impl FnMut(Bci, u16) -> bool,
    ) -> bool {
        let Some(mut lines) = self.line_table(memory, method) else { return false };
        for _ in 0..MAX_LINE_ENTRIES {
            if lines.advance() != Some(true) {
                break;
            }
            if u16::try_from(lines.line).is_ok_and(|line| !emit(Bci(lines.bci), line)) {
                break;
            }
        }
        true
    }

    fn line_table<'m, M: Memory + ?Sized>(&self, memory: &'m M, method: Method) -> Option<Lines<'m, M>> {
        let layout = &self.layout.method;
        let const_method = self.const_method(memory, method).ok()?;
        let flags = layout.const_method_flags.read(memory, const_method).ok()?;
        if flags & u64::from(layout.has_line_numbers) == 0 {
            return None;
        }
        let words = memory.read_u32(at(const_method, layout.const_method_words)).ok()?;
        let code_size = memory.read_u16(at(const_method, layout.code_size)).ok()?;
        let end = const_method.checked_add(u64::from(words) * 8)?;
        let start = const_method.wrapping_add(layout.const_method_header).wrapping_add(u64::from(code_size));
        let bytes = Span { start, end };
        let most = if memory.is_loaded_directly(start, LOADED_LINES) { LOADED_LINES } else { usize::MAX };
        let block = Block { most, ..Block::WHOLE };
        Some(Lines { memory, window: Window::EMPTY, numbers: self.unsigned5, bytes, block, bci: 0, line: 0 })
    }
}

/// Reader of one compressed line table.
struct Lines<'m, M: ?Sized> {
    memory: &'m M,
    window: Window<256>,
    numbers: Unsigned5,
    /// The rest of the table.
    bytes: Span,
    /// How much is read at once.
    block: Block,
    /// The entry that was read last.
    bci: i32,
    line: i32,
}

impl<M: Memory + ?Sized> Lines<'_, M> {
    fn next(&mut self, most: usize) -> Option<&[u8]> {
        let length = most.min(usize::try_from(self.bytes.size()).ok()?);
        self.window.get(self.memory, self.bytes, length, self.block).ok()
    }

    fn next_number(&mut self) -> Option<i32> {
        let numbers = self.numbers;
        let (number, length) = numbers.read_signed(self.next(MAX_BYTES)?)?;
        self.bytes.start += length as u64;
        Some(number)
    }

    /// Reads the next entry. Returns false at the end of the table, and `None` if it is broken.
    fn advance(&mut self) -> Option<bool> {
        let packed = *self.next(1)?.first()?;
        if packed == 0 {
            return Some(false);
        }
        self.bytes.start += 1;
        let (bci, line) = match packed {
            0xff => (self.next_number()?, self.next_number()?),
            packed => (i32::from(packed >> 3), i32::from(packed & 7)),
        };
        self.bci = self.bci.wrapping_add(bci);
        self.line = self.line.wrapping_add(line);
        Some(true)
    }

    /// Line of the entry at `target`, else of the nearest entry before it; the table is not sorted.
    fn find(mut self, target: i32) -> Option<u16> {
        let mut nearest: Option<(i32, i32)> = None;
        for _ in 0..MAX_LINE_ENTRIES {
            if !self.advance()? {
                break;
            }
            if self.bci <= target && nearest.is_none_or(|(bci, _)| self.bci >= bci) {
                nearest = Some((self.bci, self.line));
            }
            if self.bci == target {
                break;
            }
        }
        nearest.and_then(|(_, line)| u16::try_from(line).ok())
    }
}
