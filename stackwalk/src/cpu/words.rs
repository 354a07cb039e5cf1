//! Records of 64-bit words and their encoding in this machine's byte order.
//!
//! Invariant: encoding and decoding need no `unsafe` and no allocation.

/// A word, or a record of words in a fixed order.
pub(crate) trait Words: Sized {
    /// The record whose words are all zero.
    const ZERO: Self;
    /// Number of words.
    const COUNT: usize;

    /// Writes the words to the next places of `to`.
    fn put<'b>(&self, to: &mut impl Iterator<Item = &'b mut [u8; 8]>);

    /// Reads the record from the next words of `from`; `None` if they are too few.
    fn take<'b>(from: &mut impl Iterator<Item = &'b [u8; 8]>) -> Option<Self>;
}

impl Words for u64 {
    const ZERO: Self = 0;
    const COUNT: usize = 1;

    #[inline]
    fn put<'b>(&self, to: &mut impl Iterator<Item = &'b mut [u8; 8]>) {
        if let Some(word) = to.next() {
            *word = self.to_ne_bytes();
        }
    }

    #[inline]
    fn take<'b>(from: &mut impl Iterator<Item = &'b [u8; 8]>) -> Option<Self> {
        from.next().map(|word| Self::from_ne_bytes(*word))
    }
}

/// Declares a record of words and of other such records.
macro_rules! words {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(C)]
        pub struct $name { $($(#[$doc])* pub $field: $kind,)* }

        impl $crate::cpu::words::Words for $name {
            const ZERO: Self = Self { $($field: <$kind as $crate::cpu::words::Words>::ZERO,)* };
            const COUNT: usize = size_of::<Self>() / 8;

            #[inline]
            fn put<'b>(&self, to: &mut impl Iterator<Item = &'b mut [u8; 8]>) {
                $($crate::cpu::words::Words::put(&self.$field, to);)*
            }

            #[inline]
            fn take<'b>(from: &mut impl Iterator<Item = &'b [u8; 8]>) -> Option<Self> {
                Some(Self { $($field: $crate::cpu::words::Words::take(from)?,)* })
            }
        }
    };
}
pub(crate) use words;

/// Declares a record of general-purpose registers.
macro_rules! registers {
    ($(#[$outer:meta])* pub struct $name:ident { $($register:ident)* }) => {
        $crate::cpu::words::words! {
            $(#[$outer])*
            pub struct $name {
                $(#[doc = concat!("Register `", stringify!($register), "`.")] pub $register: u64,)*
            }
        }
    };
}
pub(crate) use registers;
