//! Names of native functions for display.
//!
//! Agents send symbols as the compiler wrote them, because demangling takes microseconds a name. C++ and Rust names are
//! demangled here, once per symbol and dictionary. Parameters are left out: they make names of C++ functions three
//! times as long and rarely distinguish frames.
//! Invariant: neither a name nor the text written on the way to it exceeds [`MAX_NAME`], although short symbols can
//! stand for gigabytes of text.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};
use xxhash_rust::xxh3::xxh3_64;

/// Longest name, in bytes; names of template instances may be much longer.
const MAX_NAME: usize = 256;

/// Longest symbol that is demangled, in bytes.
const MAX_SYMBOL: usize = 1024;

/// Beginning of the second name that glibc gives a function for its own calls (`include/libc-symbols.h`).
const GLIBC_INTERNAL: &str = "__GI_";

/// Returns a symbol as the author of the function wrote it, without parameters. A long one is cut and gets a hash of
/// the symbol, so that functions that differ behind the cut remain distinct.
pub fn function_text(symbol: &str) -> Cow<'_, str> {
    let symbol = symbol.strip_prefix(GLIBC_INTERNAL).filter(|name| !name.is_empty()).unwrap_or(symbol);
    let name = demangled(symbol).map_or(Cow::Borrowed(symbol), Cow::Owned);
    match name.char_indices().find(|(at, _)| *at > MAX_NAME) {
        Some((end, _)) => {
            let whole = xxh3_64(symbol.as_bytes()) as u32;
            Cow::Owned(format!("{}…{whole:08x}", &name[..end]))
        }
        None => name,
    }
}

/// Returns the C++ or Rust name of a symbol, slightly more than [`MAX_NAME`] of it; `None` if it is not mangled.
fn demangled(symbol: &str) -> Option<String> {
    // Mangled names on Linux begin with `_Z`, `_R` or `_GLOBAL_`.
    if !symbol.starts_with('_') || symbol.len() > MAX_SYMBOL {
        return None;
    }
    let mut name = Beginning::default();
    let complete = match rustc_demangle::try_demangle(symbol) {
        Ok(rust) => write!(name, "{rust:#}"),
        Err(_) => {
            let options = DemangleOptions::new().no_params().no_return_type();
            Symbol::new(symbol).ok()?.structured_demangle(&mut name, &options)
        }
    };
    (complete.is_ok() || name.is_full()).then_some(name.text)
}

/// The beginning of a text; refuses what follows.
#[derive(Default)]
struct Beginning {
    text: String,
}

impl Beginning {
    fn is_full(&self) -> bool {
        self.text.len() > MAX_NAME + char::MAX.len_utf8()
    }
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.is_full() {
                return Err(fmt::Error);
            }
            self.text.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_demangled_without_parameters() {
        let check = |symbol: &str, expect: &str| assert_eq!(function_text(symbol), expect);
        check("__GI___clone3", "__clone3");
        check("__GI_", "__GI_");
        check(
            "_ZN9JavaCalls11call_helperEP9JavaValueRK12methodHandleP17JavaCallArgumentsP10JavaThread",
            "JavaCalls::call_helper",
        );
        check("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
        check("_RNvC6_123foo3bar", "123foo::bar");
        check("start_thread", "start_thread");
        check("_Znot_mangled", "_Znot_mangled");
        check("libfoo.so+0x1230@0123456789abcdef", "libfoo.so+0x1230@0123456789abcdef");
        check("", "");
        for long in ["x".repeat(1000), format!("_ZN{}E", "5hello".repeat(100)), "_Zä".repeat(1000)] {
            let name = function_text(&long);
            assert!(name.contains('…') && name.len() <= MAX_NAME + 16, "{name}");
            assert_ne!(name, function_text(&format!("{long}z")), "they differ behind the cut");
        }
    }

    #[test]
    fn short_symbols_of_very_long_names_are_cut() {
        // Each argument is a pair of the one before: the last one consists of 2^32 words.
        let digit = |number| char::from_digit(number, 36).map_or('_', |digit| digit.to_ascii_uppercase());
        let pairs: String = (1..32).map(|last| format!("S0_IS{0}_S{0}_E", digit(last))).collect();
        let symbol = format!("_Z1fIJSt4pairIiiE{pairs}EEvDpT_");
        let name = function_text(&symbol);
        assert!(name.starts_with("f<std::pair<int, int>, std::pair<std::pair<int, int>"), "{name}");
        assert!(name.contains('…') && name.len() <= MAX_NAME + 16, "{name}");
    }
}
