//! The tables in which every libjvm describes its own structures, read row by row.
//!
//! HotSpot exports 24 symbols (`hotspot/share/runtime/vmStructs.cpp`, the same in JDK 11 to 25): four point to the
//! first row of a table, the other twenty are the column offsets and row strides of those tables. Four columns of the
//! types table are not used.
//! A table ends at the row whose name pointer is null.
//! The rows are complete once libjvm is loaded; the variables they point to are filled while the VM starts.

use core::ops::{ControlFlow, Range};

use super::layout_error::LayoutError;
use crate::limits::MAX_TABLE_ROWS;
use crate::memory::{Memory, field, read_c_string};

macro_rules! symbols {
    ($($(#[$doc:meta])* $field:ident = $name:literal;)*) => {
        /// Values of the exported table symbols: row addresses, column offsets and strides.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct VmSymbols { $($(#[$doc])* pub $field: u64,)* }

        impl VmSymbols {
            /// Reads all values; `lookup` gives the address of an exported symbol.
            ///
            /// # Errors
            /// [`LayoutError::MissingSymbol`] if the library is no HotSpot, [`LayoutError::Unreadable`].
            pub fn lookup<M: Memory + ?Sized>(
                mut lookup: impl FnMut(&str) -> Option<u64>,
                memory: &M,
            ) -> Result<Self, LayoutError> {
                Ok(Self {
                    $($field: {
                        let address = lookup($name).ok_or(LayoutError::MissingSymbol($name))?;
                        memory.read_u64(address)?
                    },)*
                })
            }
        }
    };
}

symbols! {
    /// First row of the fields table.
    structs = "gHotSpotVMStructs";
    /// Column: name of the type that holds the field.
    struct_type_name = "gHotSpotVMStructEntryTypeNameOffset";
    /// Column: name of the field.
    struct_field_name = "gHotSpotVMStructEntryFieldNameOffset";
    /// Column: C++ type of the field as text, may be null.
    struct_type_string = "gHotSpotVMStructEntryTypeStringOffset";
    /// Column: whether the field is static.
    struct_is_static = "gHotSpotVMStructEntryIsStaticOffset";
    /// Column: offset in the object, of fields that are not static.
    struct_offset = "gHotSpotVMStructEntryOffsetOffset";
    /// Column: address of the variable, of static fields.
    struct_address = "gHotSpotVMStructEntryAddressOffset";
    /// Bytes from one row of the fields table to the next.
    struct_stride = "gHotSpotVMStructEntryArrayStride";
    /// First row of the types table.
    types = "gHotSpotVMTypes";
    /// Column: name of the type.
    type_name = "gHotSpotVMTypeEntryTypeNameOffset";
    /// Column: its size in bytes.
    type_size = "gHotSpotVMTypeEntrySizeOffset";
    /// Bytes from one row of the types table to the next.
    type_stride = "gHotSpotVMTypeEntryArrayStride";
    /// First row of the 32-bit constants table.
    ints = "gHotSpotVMIntConstants";
    /// Column: name of the constant.
    int_name = "gHotSpotVMIntConstantEntryNameOffset";
    /// Column: its value.
    int_value = "gHotSpotVMIntConstantEntryValueOffset";
    /// Bytes from one row of the 32-bit constants table to the next.
    int_stride = "gHotSpotVMIntConstantEntryArrayStride";
    /// First row of the 64-bit constants table.
    longs = "gHotSpotVMLongConstants";
    /// Column: name of the constant.
    long_name = "gHotSpotVMLongConstantEntryNameOffset";
    /// Column: its value.
    long_value = "gHotSpotVMLongConstantEntryValueOffset";
    /// Bytes from one row of the 64-bit constants table to the next.
    long_stride = "gHotSpotVMLongConstantEntryArrayStride";
}

/// Place of one field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldRow {
    /// In every object of its type; `width` is 0 when the C++ type is no plain number or pointer.
    Instance { offset: u32, width: u8 },
    /// In one variable.
    Static { address: u64 },
}

/// Offset of a field in each object of its type.
pub(crate) fn offset(row: Option<FieldRow>) -> Option<u32> {
    match row? {
        FieldRow::Instance { offset, .. } => Some(offset),
        FieldRow::Static { .. } => None,
    }
}

/// Address of a static field.
pub(crate) fn variable(row: Option<FieldRow>) -> Option<u64> {
    match row? {
        FieldRow::Static { address } => Some(address).filter(|&address| address != 0),
        FieldRow::Instance { .. } => None,
    }
}

/// Longest row of a table; the widest one (fields) has 48 bytes.
const ROW_BYTES: usize = 64;

/// Longest name compared; the names searched for are shorter than 50 bytes.
const NAME_BYTES: usize = 80;

/// Bytes of a name that are read first: most names are shorter.
const FIRST_BYTES: usize = 32;

/// A NUL-terminated name copied out of libjvm.
struct Name {
    /// Address of the name.
    address: u64,
    bytes: [u8; NAME_BYTES],
    length: usize,
}

impl Name {
    fn read<M: Memory + ?Sized>(memory: &M, address: u64) -> Result<Self, LayoutError> {
        let mut name = Self { address, bytes: [0; NAME_BYTES], length: 0 };
        if address == 0 {
            return Ok(name);
        }
        let (first, rest) = name.bytes.split_at_mut(FIRST_BYTES);
        name.length = read_c_string(memory, address, first)?;
        if name.length == FIRST_BYTES {
            name.length += read_c_string(memory, address.wrapping_add(FIRST_BYTES as u64), rest)?;
        }
        Ok(name)
    }

    fn text(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or("")
    }
}

/// One row of a table as bytes, with column access.
struct Row([u8; ROW_BYTES]);

impl Row {
    fn word(&self, column: u64) -> u64 {
        u32::try_from(column).ok().and_then(|column| field(&self.0, column)).map_or(0, u64::from_ne_bytes)
    }

    fn int(&self, column: u64) -> i32 {
        u32::try_from(column).ok().and_then(|column| field(&self.0, column)).map_or(0, i32::from_ne_bytes)
    }
}

/// Calls `visit` with every row of one table up to the row without a name.
fn rows<M: Memory + ?Sized>(
    memory: &M,
    first: u64,
    stride: u64,
    name_column: u64,
    mut visit: impl FnMut(&Row) -> Result<(), LayoutError>,
) -> Result<(), LayoutError> {
    let length = usize::try_from(stride)
        .ok()
        .filter(|&n| n > 0 && n <= ROW_BYTES)
        .ok_or(LayoutError::BadStride(stride))?;
    for index in 0..MAX_TABLE_ROWS {
        let mut row = Row([0; ROW_BYTES]);
        let address = first.wrapping_add(index.wrapping_mul(stride));
        memory.read(address, row.0.get_mut(..length).ok_or(LayoutError::BadStride(stride))?)?;
        if row.word(name_column) == 0 {
            return Ok(());
        }
        visit(&row)?;
    }
    Err(LayoutError::EndlessTable(first))
}

/// Visits the fields table: type, field, and a function that finds its place; `None` if its offset or type is
/// unreadable.
pub(crate) fn visit_fields<M: Memory + ?Sized>(
    symbols: &VmSymbols,
    memory: &M,
    mut visit: impl FnMut(&str, &str, &dyn Fn() -> Option<FieldRow>),
) -> Result<(), LayoutError> {
    // Fields of a type follow each other, and have its name at the same address.
    let mut type_name = Name::read(memory, 0)?;
    rows(memory, symbols.structs, symbols.struct_stride, symbols.struct_type_name, |row| {
        let type_address = row.word(symbols.struct_type_name);
        if type_name.address != type_address {
            type_name = Name::read(memory, type_address)?;
        }
        let field_name = Name::read(memory, row.word(symbols.struct_field_name))?;
        let find = || {
            if row.int(symbols.struct_is_static) != 0 {
                return Some(FieldRow::Static { address: row.word(symbols.struct_address) });
            }
            let offset = u32::try_from(row.word(symbols.struct_offset)).ok()?;
            let type_string = Name::read(memory, row.word(symbols.struct_type_string)).ok()?;
            Some(FieldRow::Instance { offset, width: width(type_string.text()) })
        };
        visit(type_name.text(), field_name.text(), &find);
        Ok(())
    })
}

/// Bytes read at once while rows are searched for.
const SCAN_BYTES: usize = 16 << 10;

/// Visits rows of the form of the fields table wherever they lie in `data`: type, field, offset in the object.
///
/// For tables without an exported name. Bytes count as a row if their names lie inside `strings`. Ends when `visit`
/// breaks.
pub(crate) fn scan_fields<M: Memory + ?Sized>(
    symbols: &VmSymbols,
    memory: &M,
    data: Range<u64>,
    strings: &Range<u64>,
    mut visit: impl FnMut(&str, &str, u32) -> ControlFlow<()>,
) {
    let Some(stride) = usize::try_from(symbols.struct_stride).ok().filter(|&n| n > 0 && n <= ROW_BYTES)
    else {
        return;
    };
    let Ok(type_name) = usize::try_from(symbols.struct_type_name) else { return };
    let strings_length = strings.end.saturating_sub(strings.start);
    let mut bytes = [0; SCAN_BYTES + ROW_BYTES];
    let mut start = data.start;
    while start < data.end {
        let length = usize::try_from(data.end - start).unwrap_or(usize::MAX).min(bytes.len());
        let Some(block) = bytes.get_mut(..length) else { return };
        if memory.read(start, block).is_err() {
            return;
        }
        // The name of the type rules out nearly all of the data, so only the words that may be one are looked at.
        let is_name = |word: &[u8; 8]| u64::from_ne_bytes(*word).wrapping_sub(strings.start) < strings_length;
        let words = block.get(type_name..).unwrap_or_default().as_chunks().0;
        for (index, _) in words.iter().enumerate().take(SCAN_BYTES / 8).filter(|(_, word)| is_name(word)) {
            let Some(window) = block.get(8 * index..8 * index + stride) else { break };
            let mut row = Row([0; ROW_BYTES]);
            if let Some(columns) = row.0.get_mut(..stride) {
                columns.copy_from_slice(window);
            }
            let names = [symbols.struct_type_name, symbols.struct_field_name].map(|column| row.word(column));
            let is_row =
                names.iter().all(|name| strings.contains(name)) && row.word(symbols.struct_address) == 0;
            let Some(offset) = u32::try_from(row.word(symbols.struct_offset)).ok().filter(|_| is_row) else {
                continue;
            };
            if let [Ok(type_name), Ok(field_name)] = names.map(|name| Name::read(memory, name))
                && visit(type_name.text(), field_name.text(), offset).is_break()
            {
                return;
            }
        }
        start = start.saturating_add(SCAN_BYTES as u64);
    }
}

/// Visits the types table: name and size.
pub(crate) fn visit_types<M: Memory + ?Sized>(
    symbols: &VmSymbols,
    memory: &M,
    mut visit: impl FnMut(&str, u64),
) -> Result<(), LayoutError> {
    rows(memory, symbols.types, symbols.type_stride, symbols.type_name, |row| {
        visit(Name::read(memory, row.word(symbols.type_name))?.text(), row.word(symbols.type_size));
        Ok(())
    })
}

/// Visits the 32-bit constants table.
pub(crate) fn visit_ints<M: Memory + ?Sized>(
    symbols: &VmSymbols,
    memory: &M,
    mut visit: impl FnMut(&str, i32),
) -> Result<(), LayoutError> {
    rows(memory, symbols.ints, symbols.int_stride, symbols.int_name, |row| {
        visit(Name::read(memory, row.word(symbols.int_name))?.text(), row.int(symbols.int_value));
        Ok(())
    })
}

/// Visits the 64-bit constants table.
pub(crate) fn visit_longs<M: Memory + ?Sized>(
    symbols: &VmSymbols,
    memory: &M,
    mut visit: impl FnMut(&str, u64),
) -> Result<(), LayoutError> {
    rows(memory, symbols.longs, symbols.long_stride, symbols.long_name, |row| {
        visit(Name::read(memory, row.word(symbols.long_name))?.text(), row.word(symbols.long_value));
        Ok(())
    })
}

/// Bytes of a number or pointer of this C++ type, 0 for anything else.
fn width(type_string: &str) -> u8 {
    let plain = type_string.trim_start_matches("volatile ").trim_start_matches("const ");
    match plain {
        "bool" | "u1" | "s1" | "char" | "signed char" | "unsigned char" | "jbyte" | "int8_t" | "uint8_t"
        | "CompLevel" | "CodeBlobKind" => 1,
        "u2" | "s2" | "short" | "unsigned short" | "jshort" | "jchar" | "int16_t" | "uint16_t" => 2,
        "int" | "uint" | "unsigned int" | "jint" | "u4" | "int32_t" | "uint32_t" | "pid_t" => 4,
        "size_t" | "intptr_t" | "uintptr_t" | "address" | "jlong" | "u8" | "int64_t" | "uint64_t"
        | "julong" => 8,
        pointer if pointer.ends_with('*') => 8,
        _ => 0,
    }
}
