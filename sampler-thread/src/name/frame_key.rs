//! A Java frame in one word.
//!
//! A program has tens of thousands of frames, and the first use of a page costs more than the names in it: with this
//! key their table has two thirds of the pages.

use proto::v1::FrameKind;
use stackwalk::Method;

/// Method, bytecode index and kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FrameKey(u64);

const KIND_BITS: u32 = 3;
/// For the index plus 1; a method has at most 65,535 bytes of code (JVM specification, 4.7.3).
const BCI_BITS: u32 = 16;
/// Addresses of user space have 47 bits on x86-64 and 48 on aarch64; those of methods are multiples of 8.
const METHOD_BITS: u32 = 48;
const METHOD_SHIFT: u32 = BCI_BITS + KIND_BITS;

const _: () = assert!(METHOD_BITS - 3 + METHOD_SHIFT == u64::BITS);

impl FrameKey {
    /// The key of a frame with a bytecode index of -1 or more; `None` if it does not fit, or is none of Java.
    pub(super) fn new(Method(method): Method, bci: i32, kind: FrameKind) -> Option<Self> {
        let kind = match kind {
            FrameKind::Unspecified => 0,
            FrameKind::Interpreted => 1,
            FrameKind::C1 => 2,
            FrameKind::C2 => 3,
            FrameKind::Inlined => 4,
            FrameKind::NativeMethod => 5,
            FrameKind::Jvmci => 6,
            FrameKind::Stub | FrameKind::Native | FrameKind::Vm | FrameKind::Marker => return None,
        };
        let bci = u64::try_from(bci.checked_add(1)?).ok()?;
        let fits = method >> METHOD_BITS == 0 && method.is_multiple_of(8) && bci >> BCI_BITS == 0;
        fits.then_some(Self(method >> 3 << METHOD_SHIFT | bci << KIND_BITS | kind))
    }

    pub(super) fn method(self) -> Method {
        Method(self.0 >> METHOD_SHIFT << 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_a_key_of_its_own() {
        let methods = [8, 16, 0x7fff_ffff_fff8, 0xffff_ffff_fff8].map(Method);
        let kinds = [
            FrameKind::Unspecified,
            FrameKind::Interpreted,
            FrameKind::C1,
            FrameKind::C2,
            FrameKind::Inlined,
            FrameKind::NativeMethod,
            FrameKind::Jvmci,
        ];
        let mut keys = std::collections::HashSet::new();
        for method in methods {
            for bci in [-1, 0, 1, 65_534] {
                for kind in kinds {
                    let key = FrameKey::new(method, bci, kind).expect("it fits");
                    assert_eq!(key.method(), method);
                    assert!(keys.insert(key), "{method:?} {bci} {kind:?}");
                }
            }
        }
    }

    #[test]
    fn a_frame_that_does_not_fit_has_no_key() {
        let key = |method, bci, kind| FrameKey::new(Method(method), bci, kind);
        assert_eq!(key(1 << 48, 0, FrameKind::C2), None);
        assert_eq!(key(12, 0, FrameKind::C2), None);
        assert_eq!(key(8, 65_535, FrameKind::C2), None);
        assert_eq!(key(8, -2, FrameKind::C2), None);
        assert_eq!(key(8, 0, FrameKind::Native), None);
    }
}
