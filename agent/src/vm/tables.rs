//! Reads the VM's tables before the VM has started.
//!
//! Problem: reading them takes 0.3 ms and more, for which the program would wait.
//! Approach: a thread of its own reads them while the VM starts. Where an error has to end the start (`strict`), or
//! the VM runs already, they are read at once. The thread begins before the VM makes its compilers, so
//! DebugNonSafepoints is on for nearly all code, and for all of it where it gets a processor within some
//! milliseconds.

use std::io;

use stackwalk::{HotSpot, LayoutError, LiveMemory, MountedOffsets};

use crate::handler::memory::{PreparedRoom, Room};
use crate::jvmti::symbols::Library;
use crate::jvmti::vm::Vm;
use crate::jvmti::{flags, vm_memory};
use crate::vm::chunks::FIRST_WITH_VIRTUAL_THREADS;
use agent_options::Options;

#[derive(Debug)]
pub struct VmTables {
    pub hotspot: HotSpot,
    /// Offsets at which the VM stores the mounted virtual thread.
    pub mounted: Option<MountedOffsets>,
}

impl VmTables {
    /// Reads them, and switches DebugNonSafepoints on.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn read(vm: Vm, memory: &LiveMemory) -> Result<Self, LayoutError> {
        // Opened here: a library belongs to its thread.
        let library = vm.library();
        let hotspot = layouts(library.as_ref(), memory)?;
        let library = library.filter(|_| hotspot.jdk_major() >= FIRST_WITH_VIRTUAL_THREADS);
        let mounted = library.and_then(|library| vm_memory::mounted_offsets(&library, memory));
        Ok(Self { hotspot, mounted })
    }
}

/// Reads the layouts of the VM in `library`, and switches DebugNonSafepoints on.
///
/// # Errors
/// [`LayoutError`].
pub fn layouts(library: Option<&Library>, memory: &LiveMemory) -> Result<HotSpot, LayoutError> {
    let hotspot = HotSpot::read_tables(|name| library?.symbol(name), memory)?;
    flags::switch_on(&hotspot, memory);
    Ok(hotspot)
}

/// The preparations of a profile in a VM that is not initialised.
#[derive(Debug)]
pub enum Preparation {
    /// A thread prepares the memory of the handlers, and reads the tables if that was not done before.
    Begun(PreparedRoom<Result<VmTables, LayoutError>>),
    /// The tables were read. In a program that runs, a former profile may leave its memory to this one.
    Read(Box<VmTables>),
}

impl Preparation {
    /// Begins in a VM that starts, with the tables if they were `read`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(
        options: &Options,
        vm: Vm,
        memory: &'static LiveMemory,
        read: Option<VmTables>,
    ) -> io::Result<Self> {
        let tables = move || read.map_or_else(|| VmTables::read(vm, memory), Ok);
        PreparedRoom::begin(options, tables).map(Self::Begun)
    }

    /// Waits for the thread.
    ///
    /// # Errors
    /// The thread has failed, or the tables are not those of a supported VM.
    pub fn finish(self) -> io::Result<(Option<Room>, Result<VmTables, LayoutError>)> {
        match self {
            Self::Begun(prepared) => prepared.finish().map(|(room, tables)| (Some(room), tables)),
            Self::Read(tables) => Ok((None, Ok(*tables))),
        }
    }
}
