//! Encodes a JFR chunk: numbers, strings, and events with a size prefix.

/// Bytes under construction.
#[derive(Clone, Debug, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Appends a number with seven bits per byte, the lowest first; a ninth byte has eight bits.
    pub fn number(&mut self, mut value: u64) {
        for _ in 0..8 {
            if value < 0x80 {
                self.0.push(value as u8);
                return;
            }
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends a signed number as its 64 bits.
    pub fn signed(&mut self, value: i64) {
        self.number(value as u64);
    }

    /// Appends a signed number of 32 bits, as the JVM does: readers expect no more than five bytes.
    pub fn signed_int(&mut self, value: i32) {
        self.number(u64::from(value.cast_unsigned()));
    }

    /// Appends a boolean.
    pub fn boolean(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    /// Appends an inline string; `None` is null and differs from the empty string.
    pub fn string(&mut self, text: Option<&str>) {
        const NULL: u8 = 0;
        const EMPTY: u8 = 1;
        const UTF8: u8 = 3;
        match text {
            None => self.0.push(NULL),
            Some("") => self.0.push(EMPTY),
            Some(text) => {
                self.0.push(UTF8);
                self.number(text.len() as u64);
                self.0.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Appends the bytes of `other`.
    pub fn append(&mut self, other: &Bytes) {
        self.0.extend_from_slice(&other.0);
    }

    /// Appends an event of this type with these fields; the size includes the size's own bytes.
    pub fn event(&mut self, class: u64, fields: &Bytes) {
        let mut head = Bytes::default();
        head.number(class);
        let rest = (head.len() + fields.len()) as u64;
        let size = (1..=9).map(|own| rest + own).find(|&size| number_bytes(size) == size - rest);
        self.number(size.unwrap_or(rest + 9));
        self.append(&head);
        self.append(fields);
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the length of `value` as encoded by [`Bytes::number`].
fn number_bytes(value: u64) -> u64 {
    let bits = u64::from((u64::BITS - value.leading_zeros()).max(1));
    bits.div_ceil(7).min(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (u64::MAX, &[0xff; 9]),
            (1 << 56, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        ] {
            let mut encoded = Bytes::default();
            encoded.number(value);
            assert_eq!(encoded.as_slice(), bytes);
            assert_eq!(number_bytes(value), bytes.len() as u64);
        }
    }

    #[test]
    fn signed_numbers_of_32_bits_take_five_bytes_at_most() {
        for (value, bytes) in [(0, &[0][..]), (300, &[0xac, 2]), (-1, &[0xff, 0xff, 0xff, 0xff, 0xf])] {
            let mut encoded = Bytes::default();
            encoded.signed_int(value);
            assert_eq!(encoded.as_slice(), bytes);
        }
    }

    #[test]
    fn the_size_of_an_event_counts_itself() {
        for len in [0, 1, 124, 125, 126, 127, 128, 16_380, 16_381, 16_382, 16_383] {
            let fields = Bytes(vec![7; len]);
            let mut event = Bytes::default();
            event.event(5, &fields);
            let mut size = Bytes::default();
            size.number(event.len() as u64);
            assert_eq!(event.as_slice()[..size.len()], *size.as_slice(), "{len}");
        }
    }
}
