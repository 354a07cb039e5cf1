//! Frames of a walk: one per Java method activation, inlined ones included, and marks for VM code.

/// Address of a `Method` in metaspace; valid at the moment of the sample only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Method(pub u64);

/// Address of an instruction: the interrupted one in the newest frame, a return address in all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pc(pub u64);

/// Bytecode index; -1 is the moment before the first bytecode (for example a synchronized method's lock).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Bci(pub i32);

/// Address of a `CodeBlob`: VM code with a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Blob(pub u64);

/// Tier that compiled a method, as HotSpot numbers them: 1 to 3 are C1, 4 is C2 (or a JVMCI compiler).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CompileLevel(pub u8);

impl CompileLevel {
    /// Returns whether the optimising compiler made the code.
    #[must_use]
    pub fn is_optimised(self) -> bool {
        self.0 == 4
    }
}

/// Place of a physical frame; the same for all methods inlined into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Interrupted instruction or return address.
    pub pc: Pc,
    /// Stack pointer of this frame.
    pub sp: u64,
    /// Frame pointer register while this frame runs.
    pub fp: u64,
}

/// One step of a walk, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A method run by the interpreter.
    Interpreted {
        method: Method,
        /// Bytecode being run, or of the pending invoke; `None` while the frame is being built.
        bci: Option<Bci>,
        place: Place,
    },
    /// A method in code made by a JIT compiler.
    Compiled {
        method: Method,
        /// Bytecode being run, or of the pending invoke; `None` if the code carries no information there.
        bci: Option<Bci>,
        /// Compiler tier.
        level: CompileLevel,
        /// True if the method was inlined into the method of the next frame.
        inlined: bool,
        /// True if method and bytecode are those of a later instruction than the one that was running or calling,
        /// because the code has no information about that one.
        is_moved: bool,
        place: Place,
    },
    /// A native method, through its compiled wrapper or the interpreter.
    NativeMethod {
        method: Method,
        /// True if the wrapper was compiled.
        compiled: bool,
        place: Place,
    },
    /// VM code in the code cache; `HotSpot::blob_name` reads its name.
    Stub { blob: Blob, place: Place },
    /// The VM called Java here.
    Entry { place: Place },
    /// Code of a native library, or of the VM's.
    Native {
        place: Place,
        /// True if the pc is an interrupted instruction rather than a return address.
        interrupted: bool,
    },
    /// Frames are missing here.
    Gap {
        missing: Missing,
        /// The frame before.
        place: Place,
    },
}

/// Frames that a [`Frame::Gap`] stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Native frames: no unwind table covers the code of the frame before.
    Native,
    /// The newest Java frames of a virtual thread, at most a few: the frame before is a stub that thaws them, and they
    /// may be in neither the heap nor the stack.
    Thawing,
}

impl Frame {
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        match self {
            Self::Interpreted { method, .. }
            | Self::Compiled { method, .. }
            | Self::NativeMethod { method, .. } => Some(*method),
            Self::Stub { .. } | Self::Entry { .. } | Self::Native { .. } | Self::Gap { .. } => None,
        }
    }

    /// The bytecode index, for Java frames that have one.
    #[must_use]
    pub fn bci(&self) -> Option<Bci> {
        match self {
            Self::Interpreted { bci, .. } | Self::Compiled { bci, .. } => *bci,
            Self::NativeMethod { .. }
            | Self::Stub { .. }
            | Self::Entry { .. }
            | Self::Native { .. }
            | Self::Gap { .. } => None,
        }
    }

    /// Returns whether the frame is that of a later instruction than the one that was running or calling.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        matches!(self, Self::Compiled { is_moved: true, .. })
    }

    /// The place of the physical frame.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Self::Interpreted { place, .. }
            | Self::Compiled { place, .. }
            | Self::NativeMethod { place, .. }
            | Self::Stub { place, .. }
            | Self::Native { place, .. }
            | Self::Gap { place, .. }
            | Self::Entry { place } => *place,
        }
    }
}
