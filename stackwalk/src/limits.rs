//! Bounds of a walk and of every loop below it.
//!
//! Memory may hold anything when it is read, so no loop relies on a count or a terminator found there.
//! Each bound is far above the values of a healthy JVM; its comment gives the evidence.

/// Bounds that the caller sets for one walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Logical frames (inlined ones included) after which the walk stops with `Stop::DepthLimit`.
    pub max_frames: u32,
}

impl Default for Limits {
    /// 2,048 frames: the depth JFR users choose when its default of 64 cuts stacks of large frameworks.
    fn default() -> Self {
        Self { max_frames: 2048 }
    }
}

/// Rows of one VM table; JDK 21 has 2,064 rows in all four tables together.
pub(crate) const MAX_TABLE_ROWS: u64 = 20_000;

/// Hops back through a code heap's segment map. A hop covers up to 254 segments of 128 bytes, so the largest
/// heap allowed (2 GiB) needs 66,052; joined free blocks use shorter hops, but never over whole heaps.
pub(crate) const MAX_SEGMENT_HOPS: u32 = 10_000;

/// Code heaps of one VM: three with a segmented code cache, one without, a fourth in development builds.
pub(crate) const MAX_CODE_HEAPS: usize = 8;

/// Blobs visited to find one stub, which is among the first of its heap: there are about 500 when an agent starts with
/// the VM, and tens of thousands when one is attached later.
pub(crate) const MAX_CODE_BLOBS: usize = 100_000;

/// Chunks of frozen frames of one virtual thread: a freeze adds one only if the newest is full or shared.
pub const MAX_CHUNKS: usize = 16;

/// Inlined scopes at one pc. C2 stops at MaxInlineLevel (15) plus recursive and forced inlining of method
/// handle chains; the deepest seen in test workloads is below 40.
pub(crate) const MAX_INLINE_DEPTH: usize = 200;

/// Halvings when searching a PcDesc: 2^32 bytes of code cannot hold more entries than that.
pub(crate) const MAX_SEARCH_STEPS: u32 = 64;

/// Entries of a compressed line table. A method has at most 65,535 bytecodes and each entry costs a byte of
/// a table that javac writes once per statement.
pub(crate) const MAX_LINE_ENTRIES: u32 = 200_000;

/// Java threads followed in the VM's list: above the thread limit of common kernels (pid_max 32,768 or
/// cgroup pids limits) but finite.
pub(crate) const MAX_JAVA_THREADS: u32 = 100_000;

/// Flags in the VM's flag table: 1,100 to 1,500 in product builds of JDK 11 to 25.
pub(crate) const MAX_FLAGS: u64 = 10_000;

/// Performance counters: 250 to 350 in JDK 11 to 25.
pub(crate) const MAX_PERF_ENTRIES: u32 = 10_000;

/// Frame-pointer hops from leaf C code back to Java code; barrier and stub slow paths in libjvm are shallow.
pub(crate) const MAX_NATIVE_HOPS: u32 = 32;

/// Methods of one class: 65,535 by the class file format, and those that the VM adds.
pub(crate) const MAX_METHODS: u64 = 70_000;

/// Loaders, and hidden classes that are loaders of their own: programs with many lambdas have tens of thousands.
pub(crate) const MAX_LOADERS: u32 = 200_000;
