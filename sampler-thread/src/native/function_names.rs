//! Names of native functions.
//!
//! A function without a symbol is named by its library, its offset and the build id of the library, from which its name
//! can be found later: `libfoo.so+0x1230@0123456789abcdef`.
//! Symbols stay mangled: whoever reads a profile demangles them.

use std::ops::Range;
use std::sync::Arc;

use proto::characters::from_modified_utf8;
use stackwalk::Memory;

use super::symbols::Function;
use super::{Library, NativeLibraries};

/// Bytes of a build id in a name, enough to identify the library.
const BUILD_ID_BYTES: usize = 8;

/// The owner of native code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Vm,
    Library,
    Nobody,
}

/// A named native frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeName {
    /// The name, mangled.
    pub text: String,
    /// Addresses that have this name; only one if the function is unknown.
    pub range: Range<u64>,
    pub owner: Owner,
    /// Its library: path, a space, and the build id in hexadecimal, if there is one; empty if it belongs to none.
    pub library: Arc<str>,
}

impl NativeLibraries {
    /// Returns the name of the function at `pc`, an address inside the running or calling instruction.
    ///
    /// Opens files, loads symbols and allocates.
    pub fn name<M: Memory + ?Sized>(&mut self, memory: &M, pc: u64) -> NativeName {
        let only = pc..pc.saturating_add(1);
        let index = self.index_of(pc);
        let Self { libraries, unwinder, .. } = self;
        let Some(library) = index.and_then(|index| libraries.get_mut(index)) else {
            let text = "[unknown native code]".to_owned();
            return NativeName { text, range: only, owner: Owner::Nobody, library: Arc::default() };
        };
        let owner = if library.file_name() == "libjvm.so" { Owner::Vm } else { Owner::Library };
        let found = library.with_symbols(memory, |image, symbols| {
            let linked = pc.wrapping_sub(image.bias);
            if let Some(Function { name, range }) = symbols.and_then(|symbols| symbols.function(linked)) {
                let loaded = |linked: u64| linked.wrapping_add(image.bias);
                let text = from_modified_utf8(without_version(&name)).into_owned();
                return Ok((text, loaded(range.start)..loaded(range.end)));
            }
            let tables = image.tables.as_ref();
            let start = tables.and_then(|tables| unwinder.function_start(memory, tables, pc));
            let offset = start.map_or(linked, |start| start.wrapping_sub(image.bias));
            let id = hex(image.build_id.get(..BUILD_ID_BYTES).unwrap_or(&image.build_id));
            let at = if id.is_empty() { "" } else { "@" };
            Err(format!("+{offset:#x}{at}{id}"))
        });
        let (text, range) = found.unwrap_or_else(|place| (format!("{}{place}", library.file_name()), only));
        NativeName { text, range, owner, library: library.identity() }
    }
}

impl Library {
    /// Returns its path, a space, and its build id in hexadecimal, if it has one; its image must be there.
    fn identity(&mut self) -> Arc<str> {
        let Self { identity, image, path, .. } = self;
        let build_id = image.as_ref().map(|image| &*image.build_id).unwrap_or_default();
        Arc::clone(identity.get_or_insert_with(|| format!("{path} {}", hex(build_id)).into()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a symbol without its version: `memcpy@@GLIBC_2.14`.
fn without_version(symbol: &[u8]) -> &[u8] {
    symbol.split(|&byte| byte == b'@').next().unwrap_or(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_left_out() {
        for (symbol, expect) in [("memcpy@@GLIBC_2.14", "memcpy"), ("_Z3foov", "_Z3foov"), ("", "")] {
            assert_eq!(without_version(symbol.as_bytes()), expect.as_bytes());
        }
    }
}
