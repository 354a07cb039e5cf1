//! Offsets of fields of the VM, and how groups of them are declared.
//!
//! Two builds of the same JDK release differ in offsets, and releases differ in field names, widths and owners, so
//! nothing here is a number: a field is named, found or not found, and its width comes from its C++ type.

use super::layout_error::LayoutError;
use super::vm_structs::FieldRow;
use crate::memory::{Memory, Unreadable, at, field};

/// An instance field whose width differs between JDKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizedField {
    pub(crate) offset: u32,
    pub(crate) width: u8,
}

impl SizedField {
    /// Reads the field of the object at `object`, zero-extended.
    pub(crate) fn read<M: Memory + ?Sized>(self, memory: &M, object: u64) -> Result<u64, Unreadable> {
        let at = at(object, self.offset);
        match self.width {
            1 => memory.read_u8(at).map(u64::from),
            2 => memory.read_u16(at).map(u64::from),
            4 => memory.read_u32(at).map(u64::from),
            _ => memory.read_u64(at),
        }
    }

    /// The field of an object whose first bytes are in `block`, zero-extended; `None` if it lies behind them.
    pub(crate) fn of_block(self, block: &[u8]) -> Option<u64> {
        match self.width {
            1 => field(block, self.offset).map(|bytes| u64::from(u8::from_ne_bytes(bytes))),
            2 => field(block, self.offset).map(|bytes| u64::from(u16::from_ne_bytes(bytes))),
            4 => field(block, self.offset).map(|bytes| u64::from(u32::from_ne_bytes(bytes))),
            _ => field(block, self.offset).map(u64::from_ne_bytes),
        }
    }

    /// Reads the field of the object at `object`, sign-extended.
    pub(crate) fn read_signed<M: Memory + ?Sized>(self, memory: &M, object: u64) -> Result<i64, Unreadable> {
        let at = at(object, self.offset);
        match self.width {
            1 => memory.read_u8(at).map(|value| i64::from(value.cast_signed())),
            2 => memory.read_u16(at).map(|value| i64::from(value.cast_signed())),
            4 => memory.read_i32(at).map(i64::from),
            _ => memory.read_u64(at).map(u64::cast_signed),
        }
    }
}

pub(super) fn sized(row: Option<FieldRow>) -> Option<SizedField> {
    match row {
        Some(FieldRow::Instance { offset, width }) if width != 0 => Some(SizedField { offset, width }),
        _ => None,
    }
}

/// Size of a C++ type, which every supported JDK has in its tables.
pub(super) fn size(size: Option<u64>, name: &'static str) -> Result<u64, LayoutError> {
    size.ok_or(LayoutError::MissingType(name))
}

/// A constant that every supported JDK has in its tables.
pub(super) fn constant(value: Option<i32>, name: &'static str) -> Result<i32, LayoutError> {
    value.ok_or(LayoutError::MissingConstant(name))
}

/// Resolves a field, or returns the error that names it.
macro_rules! need {
    ($kind:ident $tables:ident . $row:ident) => {
        $kind($tables.fields.$row).ok_or(LayoutError::MissingField(FieldTable::names(stringify!($row))))?
    };
}

/// Declares groups of offsets and how each is resolved from the tables:
///
/// - `offset(row)`, `sized(row)`, `variable(row)`: a field that every supported JDK has;
/// - `find_offset(row)`, `find_sized(row)`, `find_variable(row)`: a field that some have;
/// - `nested(row row ...)`: a field of a structure that lies in another one;
/// - `made(Type, expression)`: anything else.
macro_rules! layouts {
    (|$tables:ident| $($(#[$outer:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $rule:ident($($what:tt)*),)*
    })*) => {$(
        $(#[$outer])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $($(#[$doc])* pub(crate) $field: layouts!(@type $rule($($what)*)),)*
        }

        impl $name {
            pub(super) fn resolve($tables: &Tables) -> Result<Self, LayoutError> {
                Ok(Self { $($field: layouts!(@value $tables $rule($($what)*)),)* })
            }
        }
    )*};
    (@type offset($row:ident)) => { u32 };
    (@type sized($row:ident)) => { SizedField };
    (@type variable($row:ident)) => { u64 };
    (@type find_offset($row:ident)) => { Option<u32> };
    (@type find_sized($row:ident)) => { Option<SizedField> };
    (@type find_variable($row:ident)) => { Option<u64> };
    (@type nested($($row:ident)+)) => { u32 };
    (@type made($kind:ty, $value:expr)) => { $kind };
    (@value $tables:ident find_offset($row:ident)) => { offset($tables.fields.$row) };
    (@value $tables:ident find_sized($row:ident)) => { sized($tables.fields.$row) };
    (@value $tables:ident find_variable($row:ident)) => { variable($tables.fields.$row) };
    (@value $tables:ident nested($($row:ident)+)) => { 0_u32$(.wrapping_add(need!(offset $tables.$row)))+ };
    (@value $tables:ident made($kind:ty, $value:expr)) => { $value };
    (@value $tables:ident $kind:ident($row:ident)) => { need!($kind $tables.$row) };
}

pub(super) use {layouts, need};
