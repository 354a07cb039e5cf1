//! Names of native functions.
//!
//! A function without a symbol is named by its library, its offset and the build id of the library, from which its name
//! can be found later: `libfoo.so+0x1230@0123456789abcdef`.
//! Parameters are left out: they make names of C++ functions three times as long and rarely distinguish frames.

use cpp_demangle::DemangleOptions;
use stackwalk::Memory;

use super::NativeLibraries;
use super::image::Image;

/// Longest name, in bytes; names of template instances may be much longer.
const MAX_NAME: usize = 256;

/// Bytes of a build id in a name, enough to identify the library.
const BUILD_ID_BYTES: usize = 8;

/// The owner of native code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The VM's library.
    Vm,
    /// Any other library.
    Library,
    /// No library.
    Nobody,
}

/// A named native frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeName {
    /// The name.
    pub text: String,
    /// The owner of its code.
    pub owner: Owner,
}

impl NativeLibraries {
    /// Returns the name of the function at `pc`, an address inside the running or calling instruction.
    ///
    /// Opens files, loads symbols and allocates.
    pub fn name<M: Memory + ?Sized>(&mut self, memory: &M, pc: u64) -> NativeName {
        let index = self.index_of(pc);
        let Some(library) = index.and_then(|index| self.libraries.get_mut(index)) else {
            return NativeName { text: "[unknown native code]".to_owned(), owner: Owner::Nobody };
        };
        let file = library.file_name().to_owned();
        let owner = if file == "libjvm.so" { Owner::Vm } else { Owner::Library };
        // Taken out and put back, because its symbols are borrowed from the library as well.
        let image = library.image.take().unwrap_or_else(|| Image::read(memory, library.base));
        let linked = pc.wrapping_sub(image.bias);
        let symbol = library.symbols(memory, &image.build_id).and_then(|symbols| symbols.name(linked));
        let text = match symbol {
            Some(symbol) => demangled(&String::from_utf8_lossy(&symbol)),
            None => {
                let tables = image.tables.as_ref();
                let start = tables.and_then(|tables| self.unwinder.function_start(memory, tables, pc));
                let offset = start.map_or(linked, |start| start.wrapping_sub(image.bias));
                let id: String =
                    image.build_id.iter().take(BUILD_ID_BYTES).map(|byte| format!("{byte:02x}")).collect();
                let at = if id.is_empty() { "" } else { "@" };
                format!("{file}+{offset:#x}{at}{id}")
            }
        };
        library.image = Some(image);
        NativeName { text, owner }
    }
}

/// Returns a symbol as its author wrote it, without parameters and version.
fn demangled(symbol: &str) -> String {
    let symbol = symbol.split('@').next().unwrap_or(symbol);
    let mut text = match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{name:#}"),
        Err(_) => {
            let options = DemangleOptions::new().no_params().no_return_type();
            cpp_demangle::Symbol::new(symbol)
                .ok()
                .and_then(|name| name.demangle_with_options(&options).ok())
                .unwrap_or_else(|| symbol.to_owned())
        }
    };
    if let Some((end, _)) = text.char_indices().find(|(at, _)| *at > MAX_NAME) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_their_authors_wrote_them() {
        let check = |symbol: &str, expect: &str| assert_eq!(demangled(symbol), expect);
        check(
            "_ZN9JavaCalls11call_helperEP9JavaValueRK12methodHandleP17JavaCallArgumentsP10JavaThread",
            "JavaCalls::call_helper",
        );
        check("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
        check("_RNvC6_123foo3bar", "123foo::bar");
        check("start_thread", "start_thread");
        check("memcpy@@GLIBC_2.14", "memcpy");
        check("_Znot_mangled", "_Znot_mangled");
        assert!(demangled(&"x".repeat(1000)).chars().count() <= MAX_NAME + 2);
    }
}
