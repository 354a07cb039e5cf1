//! Patterns of names, in which `*` stands for any text.

/// Returns whether `text` matches `pattern`. Takes at most time proportional to the product of their lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // Parts between stars match at their first occurrence; the part after the last star must be the end.
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*b", "ab", true),
            ("a*b", "a", false),
            ("a*a", "a", false),
            ("*.get", "java.util.HashMap.get", true),
            ("*HashMap*", "java.util.HashMap.get", true),
            ("java.*.get", "java.util.HashMap.put", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "xab", false),
            ("a**b", "axb", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        assert!(!matches(&format!("{}b", "*a".repeat(400)), &"a".repeat(1000)));
    }
}
