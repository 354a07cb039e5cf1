//! Memory as the walker sees it: bytes at addresses, every read checked.
//!
//! Problem: metadata of a running JVM can be freed, moved or unmapped between the sample and the walk, and
//! the same walk has to work on a stack copy, on another process and on a recorded file.
//! Approach: all reads go through [`Memory`]; a read that fails is an error that carries the address.
//! Invariant: no reader turns a failed read into a value.

pub(crate) mod live;
pub(crate) mod read_cache;
pub(crate) mod safe_fetch;

/// The first address of a read that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable(pub u64);

/// Declares readers of numbers of these types.
macro_rules! numbers {
    ($($name:ident: $number:ty),*) => {$(
        /// Reads a number of this type; no alignment is required.
        ///
        /// # Errors
        /// As [`Memory::read`].
        fn $name(&self, address: u64) -> Result<$number, Unreadable> {
            let mut bytes = [0; size_of::<$number>()];
            self.read(address, &mut bytes)?;
            Ok(<$number>::from_ne_bytes(bytes))
        }
    )*};
}

/// Checked access to an address space of the same byte order as this machine.
pub trait Memory {
    /// Fills `into` with the bytes from `address` on.
    ///
    /// # Errors
    /// [`Unreadable`] when any of the bytes is missing; `into` then holds unspecified bytes.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable>;

    /// Reads a 64-bit number or pointer; no alignment is required.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Returns whether these bytes are loaded directly, so that a copy of their surroundings saves nothing.
    fn is_loaded_directly(&self, _address: u64, _length: usize) -> bool {
        false
    }

    /// Chooses how bytes are read from now on: directly, or in another way for a reason, which is returned; `None` if
    /// there is only one way. For the thread that reads; to be called again now and then.
    fn choose_access(&self) -> Option<Result<(), &'static str>> {
        None
    }

    numbers! { read_u8: u8, read_u16: u16, read_u32: u32, read_i32: i32 }

    /// Reads the words at some addresses, one after the other in this order, which costs less than to read each by
    /// itself.
    ///
    /// # Errors
    /// [`Unreadable`] when any of the words is missing.
    fn read_words<const N: usize>(&self, addresses: [u64; N]) -> Result<[u64; N], Unreadable> {
        each_word(self, addresses)
    }
}

/// Reads each word by itself.
pub(crate) fn each_word<M: Memory + ?Sized, const N: usize>(
    memory: &M,
    addresses: [u64; N],
) -> Result<[u64; N], Unreadable> {
    let mut words = [0; N];
    for (word, address) in words.iter_mut().zip(addresses) {
        *word = memory.read_u64(address)?;
    }
    Ok(words)
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(address, into)
    }

    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        (**self).read_u64(address)
    }

    fn read_u32(&self, address: u64) -> Result<u32, Unreadable> {
        (**self).read_u32(address)
    }

    fn read_i32(&self, address: u64) -> Result<i32, Unreadable> {
        (**self).read_i32(address)
    }

    fn read_words<const N: usize>(&self, addresses: [u64; N]) -> Result<[u64; N], Unreadable> {
        (**self).read_words(addresses)
    }

    fn is_loaded_directly(&self, address: u64, length: usize) -> bool {
        (**self).is_loaded_directly(address, length)
    }

    fn choose_access(&self) -> Option<Result<(), &'static str>> {
        (**self).choose_access()
    }
}

/// A copied piece of a thread's stack: `bytes` were at `base` when the sample was taken.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    base: u64,
    bytes: &'a [u8],
}

impl<'a> StackCopy<'a> {
    pub const EMPTY: Self = Self { base: 0, bytes: &[] };

    /// A copy whose first byte was at `base`.
    #[must_use]
    pub fn new(base: u64, bytes: &'a [u8]) -> Self {
        Self { base, bytes }
    }

    /// Address of the first copied byte.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Address after the last copied byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes.len() as u64)
    }

    /// All copied bytes.
    #[must_use]
    pub fn all(&self) -> &'a [u8] {
        self.bytes
    }

    /// The copied bytes from `address` on, if all of them were copied.
    #[must_use]
    pub fn bytes(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// The copied 8-byte word at `address`.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

impl Memory for StackCopy<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = self.bytes(address, into.len()).ok_or(Unreadable(address))?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// Addresses from `start` up to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// Bytes of the span; 0 if it ends before it starts.
    pub(crate) fn size(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Limits of a block that a [`Window`] loads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first byte of the region: a block may begin before the bytes of interest.
    pub(crate) low: u64,
    /// Most bytes before the bytes of interest.
    pub(crate) lead: u64,
    /// Most bytes of the block.
    pub(crate) most: usize,
}

impl Block {
    /// A block that begins with the bytes of interest and fills the window.
    pub(crate) const WHOLE: Self = Self { low: u64::MAX, lead: 0, most: usize::MAX };
}

/// Reads within one region in blocks, because a system call per field would dominate a walk.
#[derive(Clone, Debug)]
pub(crate) struct Window<const N: usize> {
    at: u64,
    filled: usize,
    bytes: [u8; N],
}

impl<const N: usize> Window<N> {
    pub(crate) const EMPTY: Self = Self { at: 0, filled: 0, bytes: [0; N] };

    /// Empties the window, so that the next read reads memory.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// The first `length` bytes of `rest`, the part of a region from the bytes of interest on.
    pub(crate) fn get<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        rest: Span,
        length: usize,
        block: Block,
    ) -> Result<&[u8], Unreadable> {
        let address = rest.start;
        let refused = Unreadable(address);
        let end = address.checked_add(length as u64).ok_or(refused)?;
        if end > rest.end || length > N {
            return Err(refused);
        }
        let filled_end = self.at.saturating_add(self.filled as u64);
        if self.filled == 0 || address < self.at || end > filled_end {
            let most = block.most.clamp(length, N);
            let spare = (most - length) as u64;
            let start = address.saturating_sub(block.lead.min(spare)).max(block.low.min(address));
            let size = usize::try_from(rest.end - start).unwrap_or(most).min(most);
            self.filled = 0;
            let bytes = self.bytes.get_mut(..size).ok_or(refused)?;
            memory.read(start, bytes)?;
            self.at = start;
            self.filled = size;
        }
        let offset = usize::try_from(address - self.at).map_err(|_| refused)?;
        self.bytes.get(offset..offset + length).ok_or(refused)
    }
}

/// Smallest page of the supported machines: a read that stays inside one page is readable wholly or not at all.
const PAGE: u64 = 4096;

/// Reads as many bytes from `address` on as fit `into` without crossing into a page that may be unmapped,
/// but at least `needed` bytes; returns how many.
pub(crate) fn read_within_page<M: Memory + ?Sized>(
    memory: &M,
    address: u64,
    needed: usize,
    into: &mut [u8],
) -> Result<usize, Unreadable> {
    let to_page_end = usize::try_from(PAGE - address % PAGE).unwrap_or(0);
    let length = to_page_end.max(needed).min(into.len());
    memory.read(address, into.get_mut(..length).ok_or(Unreadable(address))?)?;
    Ok(length)
}

/// Copies the NUL-terminated string at `address`; returns its length, cut at the size of `into`.
pub(crate) fn read_c_string<M: Memory + ?Sized>(
    memory: &M,
    address: u64,
    into: &mut [u8],
) -> Result<usize, Unreadable> {
    let mut length = 0;
    while let Some(rest) = into.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let read = read_within_page(memory, address.saturating_add(length as u64), 1, rest)?;
        if let Some(end) = rest.iter().take(read).position(|&byte| byte == 0) {
            return Ok(length + end);
        }
        length += read;
    }
    Ok(length)
}

/// Address of the field at `offset` of the object at `object`.
pub(crate) fn at(object: u64, offset: u32) -> u64 {
    object.wrapping_add(u64::from(offset))
}

/// A field of a structure that was read as a block.
pub(crate) fn field<const N: usize>(block: &[u8], offset: u32) -> Option<[u8; N]> {
    let offset = offset as usize;
    block.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory behind the last readable page cannot be read, whatever the size of a page.
    #[test]
    fn strings_are_read_up_to_the_end_of_the_last_page() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for length in [1, 40, 4096 + 40] {
                let mut bytes = std::vec![b'x'; length];
                let start = 3 * page - length as u64;
                let mut into = [0; 8192];
                let found =
                    |bytes: &[u8], into: &mut [u8]| read_c_string(&StackCopy::new(start, bytes), start, into);
                assert_eq!(found(&bytes, &mut into[..length]), Ok(length), "cut");
                assert!(
                    found(&bytes, &mut into).is_err(),
                    "{page} {length}: no end before unreadable memory"
                );
                bytes[length - 1] = 0;
                assert_eq!(found(&bytes, &mut into), Ok(length - 1), "{page} {length}");
            }
        }
    }
}
