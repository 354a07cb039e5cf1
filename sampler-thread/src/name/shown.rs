//! Which frames of walked stacks are shown.
//!
//! Walks need all frames to reach the root; what is not wanted is left out when frames are named.

use stackwalk::Frame;

/// The kinds of frames that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Frames of native libraries.
    pub native: bool,
    /// Frames of the VM: of its library, and of code that it has generated beside methods.
    pub vm: bool,
    /// Most frames by kind, if they have different limits.
    pub most: Option<MostFrames>,
}

impl Default for Shown {
    fn default() -> Self {
        Self { native: true, vm: true, most: None }
    }
}

/// Most frames of a stack by kind; the newest are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostFrames {
    /// Methods, native ones included.
    pub java: u32,
    /// Functions of libraries and of the VM.
    pub native: u32,
}

impl MostFrames {
    /// Counts a frame; returns whether it is beyond the limit of its kind.
    pub(super) fn exceeds(&mut self, frame: &Frame) -> bool {
        let left = match frame {
            Frame::Interpreted { .. } | Frame::Compiled { .. } | Frame::NativeMethod { .. } => &mut self.java,
            Frame::Stub { .. } | Frame::Native { .. } => &mut self.native,
            Frame::Entry { .. } | Frame::Gap { .. } => return false,
        };
        let exceeds = *left == 0;
        *left = left.saturating_sub(1);
        exceeds
    }
}
