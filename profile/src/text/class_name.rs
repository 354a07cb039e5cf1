//! Names of classes for display.
//!
//! Parts of a name that the VM generates (the address of a hidden class, the number of a lambda class) are removed,
//! because they differ between runs.

use std::borrow::Cow;

/// Returns a class name in Java's form, with dots and without the parts that differ between runs.
///
/// `com/example/App$$Lambda$14/0x000000080011a040` and `com/example/App$$Lambda+0x000071a2c4001400` both become
/// `com.example.App$$Lambda`.
pub fn class_text(internal: &str) -> Cow<'_, str> {
    let mut name = internal;
    if let Some((class, suffix)) = name.rsplit_once(['+', '/']) {
        let is_address =
            suffix.strip_prefix("0x").is_some_and(|hex| is_all(hex, |digit| digit.is_ascii_hexdigit()));
        // JDK 11 numbers hidden classes in decimal.
        if is_address || is_all(suffix, |digit| digit.is_ascii_digit()) {
            name = class;
        }
    }
    const LAMBDA: &str = "$$Lambda";
    if let Some((class, number)) = name.rsplit_once('$')
        && class.ends_with(LAMBDA)
        && is_all(number, |digit| digit.is_ascii_digit())
    {
        name = class;
    }
    if name.contains('/') { Cow::Owned(name.replace('/', ".")) } else { Cow::Borrowed(name) }
}

/// Returns a name such as `org.example.shop.Cart.sum` with packages cut to their first letter, from the left, until
/// it has at most `width` characters: `o.e.shop.Cart.sum`. The last `kept` parts stay whole, and so do names without
/// packages.
pub fn with_short_package(name: &str, kept: usize, width: usize) -> Cow<'_, str> {
    let is_java = |letter: char| letter.is_alphanumeric() || "._$<>:/".contains(letter);
    let mut excess = name.chars().count().saturating_sub(width);
    if excess == 0 || name.contains("::") || name.contains(".so") || !name.chars().all(is_java) {
        return Cow::Borrowed(name);
    }
    let parts: Vec<&str> = name.split('.').collect();
    let packages = parts.len().saturating_sub(kept);
    let short = parts.iter().enumerate().map(|(place, part)| {
        let first = part.chars().next().map_or(0, char::len_utf8);
        if place >= packages || excess == 0 {
            return *part;
        }
        excess = excess.saturating_sub(part.chars().count() - usize::from(first > 0));
        &part[..first]
    });
    Cow::Owned(short.collect::<Vec<_>>().join("."))
}

fn is_all(text: &str, holds: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_are_shortened() {
        let name = "org.example.shop.Cart.sum";
        for (width, text) in
            [(30, name), (24, "o.example.shop.Cart.sum"), (20, "o.e.shop.Cart.sum"), (1, "o.e.s.Cart.sum")]
        {
            assert_eq!(with_short_package(name, 2, width), text);
        }
        assert_eq!(with_short_package("org.example.shop.Cart", 1, 1), "o.e.s.Cart");
        for whole in ["Cart.sum", "JavaCalls::call_helper", "libc.so.6", "void f<a.b.c.d>(int)", ""] {
            assert_eq!(with_short_package(whole, 2, 1), whole);
        }
    }

    #[test]
    fn classes() {
        for (internal, text) in [
            ("java/lang/String", "java.lang.String"),
            ("Main", "Main"),
            ("a/B$$Lambda$14/0x000000080011a040", "a.B$$Lambda"),
            ("a/B$$Lambda+0x000071a2c4001400", "a.B$$Lambda"),
            ("a/B$$Lambda$14/1234567", "a.B$$Lambda"),
            ("java/lang/invoke/LambdaForm$MH/0x00007f00", "java.lang.invoke.LambdaForm$MH"),
            ("a/B$1", "a.B$1"),
            ("a/0x", "a.0x"),
            ("a/B+0xyz", "a.B+0xyz"),
            ("", ""),
        ] {
            assert_eq!(class_text(internal), text);
        }
    }
}
