//! The error of reading the VM's tables.

use crate::memory::Unreadable;

/// Reason why the VM's layout could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutError {
    /// The library does not export this table symbol: it is not a HotSpot VM.
    MissingSymbol(&'static str),
    /// The fields table lacks this field: each of its names in HotSpot, behind a `/`.
    MissingField(&'static str),
    /// The types table lacks this type.
    MissingType(&'static str),
    /// The constants table lacks this constant.
    MissingConstant(&'static str),
    /// A table has rows of this many bytes, which is out of range.
    BadStride(u64),
    /// The table at this address has no end.
    EndlessTable(u64),
    /// Memory at this address was needed and could not be read.
    Unreadable(u64),
    /// The VM has not yet made its code cache, interpreter or call stub.
    NotStarted,
}

impl From<Unreadable> for LayoutError {
    fn from(Unreadable(address): Unreadable) -> Self {
        Self::Unreadable(address)
    }
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::MissingSymbol(name) => write!(out, "libjvm exports no symbol {name}"),
            Self::MissingField(names) => {
                write!(out, "the VM's tables lack the field ")?;
                for (place, name) in names.split('/').filter(|name| !name.is_empty()).enumerate() {
                    write!(out, "{}{name}", if place == 0 { "" } else { " or " })?;
                }
                Ok(())
            }
            Self::MissingType(name) => write!(out, "the VM's tables lack the type {name}"),
            Self::MissingConstant(name) => write!(out, "the VM's tables lack the constant {name}"),
            Self::BadStride(stride) => {
                write!(out, "a VM table has rows of {stride} bytes, which is out of range")
            }
            Self::EndlessTable(address) => write!(out, "the VM table at {address:#x} has no end"),
            Self::Unreadable(address) => write!(out, "memory at {address:#x} cannot be read"),
            Self::NotStarted => write!(out, "the VM has not started yet"),
        }
    }
}

impl core::error::Error for LayoutError {}
