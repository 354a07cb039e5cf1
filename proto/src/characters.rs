//! Characters of texts: from the VM's encodings into UTF-8, and from there onto a screen.
//!
//! The VM keeps names in modified UTF-8, which writes a character beyond the BMP as two surrogates and NUL as two
//! bytes, and Java allows surrogates without a partner, which UTF-8 cannot express. [`from_modified_utf8`] and
//! [`from_utf16`] keep texts distinct: bytes and surrogates without a character become escapes.
//!
//! Names may contain characters that move the cursor, end a line or reverse the direction of the text around them.
//! [`shown`] escapes them. It is applied where texts enter a profile and where a line is written, so every table,
//! export and log has the same text for the same name.
//!
//! Sources: JVMS 4.4.7 (modified UTF-8), Unicode 17, 23.1 (control codes) and UAX 9 (direction).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Decodes modified UTF-8. A surrogate without a partner becomes an escape such as `\ud800`, and a byte that belongs to
/// no character becomes one such as `\xff`.
#[must_use]
pub fn from_modified_utf8(bytes: &[u8]) -> Cow<'_, str> {
    // A text that is valid in both encodings has the same characters in both.
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut units = Vec::new();
    while let Some(&first) = rest.first() {
        if let Some((unit, length)) = unit(rest) {
            units.push(unit);
            rest = rest.get(length..).unwrap_or_default();
            continue;
        }
        push_utf16(&mut text, units.drain(..));
        let (length, character) = longest_character(rest);
        match character {
            Some(character) => text.push(character),
            None => {
                // Writing to a string does not fail.
                let _ = write!(text, "\\x{first:02x}");
            }
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    push_utf16(&mut text, units.into_iter());
    Cow::Owned(text)
}

/// Decodes UTF-16. A surrogate without a partner becomes an escape such as `\ud800`.
#[must_use]
pub fn from_utf16(units: impl Iterator<Item = u16>) -> String {
    let mut text = String::new();
    push_utf16(&mut text, units);
    text
}

/// Encodes a text in modified UTF-8, as JNI functions expect it; it contains no NUL byte.
#[must_use]
pub fn to_modified_utf8(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        let [high, middle, low] = [unit >> 12, unit >> 6 & 0x3f, unit & 0x3f].map(|bits| bits as u8);
        match unit {
            1..0x80 => bytes.push(unit as u8),
            0 | 0x80..0x800 => bytes.extend([0xc0 | middle, 0x80 | low]),
            _ => bytes.extend([0xe0 | high, 0x80 | middle, 0x80 | low]),
        }
    }
    bytes
}

/// Returns `text` with an escape for each control character, each mark of direction and each line separator.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if acts(character) => {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{:04x}", u32::from(character));
            }
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Applies [`shown`] to each line of a text.
#[must_use]
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    let is_plain = |character| character == '\n' || !acts(character);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(shown).collect::<Vec<_>>().join("\n"))
}

/// Applies [`shown`] to `text` in place.
pub fn show(text: &mut String) {
    if let Cow::Owned(shown) = shown(text) {
        *text = shown;
    }
}

/// Returns whether a character acts on a terminal instead of being visible.
fn acts(character: char) -> bool {
    let is_direction = matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || is_direction || is_separator
}

/// Reads the UTF-16 unit at the start of modified UTF-8; returns it with its number of bytes.
fn unit(bytes: &[u8]) -> Option<(u16, usize)> {
    let follower = |place: usize| {
        let byte = bytes.get(place).filter(|byte| **byte & 0xc0 == 0x80)?;
        Some(u16::from(byte & 0x3f))
    };
    match u16::from(*bytes.first()?) {
        byte @ 0..0x80 => Some((byte, 1)),
        byte @ 0xc0..0xe0 => Some(((byte & 0x1f) << 6 | follower(1)?, 2)),
        byte @ 0xe0..0xf0 => Some(((byte & 0xf) << 12 | follower(1)? << 6 | follower(2)?, 3)),
        _ => None,
    }
}

/// Returns the number of bytes of the UTF-8 character at the start of `bytes`, and the character; 1 if there is none.
fn longest_character(bytes: &[u8]) -> (usize, Option<char>) {
    let first = bytes.get(..4).and_then(|bytes| str::from_utf8(bytes).ok());
    (if first.is_some() { 4 } else { 1 }, first.and_then(|text| text.chars().next()))
}

fn push_utf16(text: &mut String, units: impl Iterator<Item = u16>) {
    for character in char::decode_utf16(units) {
        match character {
            Ok(character) => text.push(character),
            Err(error) => {
                // Writing to a string does not fail.
                let _ = write!(text, "\\u{:04x}", error.unpaired_surrogate());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modified_utf8_keeps_texts_distinct() {
        let check = |bytes: &[u8], text: &str| assert_eq!(from_modified_utf8(bytes), text, "{bytes:x?}");
        check(b"", "");
        check(b"run", "run");
        check("\u{436}\u{3a9}".as_bytes(), "\u{436}\u{3a9}");
        check(b"n\xc0\x80l", "n\0l");
        check(b"\xed\xa0\xbd\xed\xb8\x80", "\u{1f600}");
        check(b"\xed\xa0\xbd\xed\xb8\x81", "\u{1f601}");
        check(b"s\xed\xa0\x80", "s\\ud800");
        check(b"s\xed\xa0\x81", "s\\ud801");
        check(b"\xed\xb8\x80\xed\xa0\xbd", "\\ude00\\ud83d");
        // Neither of the encodings, or plain UTF-8 beside modified UTF-8.
        check(b"a\xff\xc3", "a\\xff\\xc3");
        check(b"\xf0\x9f\x98\x80\xc0\x80", "\u{1f600}\0");
    }

    #[test]
    fn a_text_has_the_same_characters_in_each_encoding() {
        for text in ["", "run", "\0", "\u{436}", "\u{7ff}\u{800}\u{ffff}", "a\u{1f600}b\0c\u{10ffff}"] {
            let bytes = to_modified_utf8(text);
            assert!(!bytes.contains(&0) && bytes.iter().all(|byte| *byte < 0xf0), "{bytes:x?}");
            assert_eq!(from_modified_utf8(&bytes), text);
            assert_eq!(from_utf16(text.encode_utf16()), text);
        }
        assert_eq!(from_utf16([0x61, 0xdc01, 0x62].into_iter()), "a\\udc01b");
    }

    #[test]
    fn control_characters_are_escaped() {
        let check = |text: &str, expect: &str| assert_eq!(shown(text), expect);
        check("plain \u{436} \u{1f600} \\n", "plain \u{436} \u{1f600} \\n");
        check("a\nb\rc\td", "a\\nb\\rc\\td");
        check("\0\u{1b}[31m\u{7f}\u{9b}", "\\u0000\\u001b[31m\\u007f\\u009b");
        check("\u{202e}abc\u{2066}\u{200f}\u{61c}", "\\u202eabc\\u2066\\u200f\\u061c");
        check("\u{2028}\u{2029}", "\\u2028\\u2029");
        assert_eq!(shown_lines("a\nb\n"), "a\nb\n");
        assert_eq!(shown_lines("a\u{1b}\n\rb\n"), "a\\u001b\n\\rb\n");
        let mut text = "a\nb".to_owned();
        show(&mut text);
        assert_eq!(text, "a\\nb");
    }
}
