//! Names of classes for display.
//!
//! Parts of a name that the VM generates at class loading (the address suffix of hidden classes, the number of a lambda
//! class) are removed: they differ between runs and would split equal methods.

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

fn is_all(text: &str, holds: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

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
