//! The archive of classes (CDS), which is mapped when the VM starts.
//!
//! Classes, methods and names in it are those of the JDK's own classes for the most part. The VM maps it before the
//! first class is loaded and unmaps it only if that fails; classes of it that are unloaded keep their memory. The first
//! redefinition of a class maps the read-only part again, writable, at the same place.
//! Sources: `MetaspaceShared::initialize_runtime_shared_and_meta_spaces`, `unmap_archive` and
//! `remap_shared_readonly_as_readwrite` (`cds/metaspaceShared.cpp`), `MetadataFactory::free_metadata`
//! (`memory/metadataFactory.hpp`: nothing that is shared), JDK 17 to 25.

use super::HotSpot;
use crate::memory::Memory;

impl HotSpot {
    /// Addresses of the mapped archive, as (start, end); usable once the VM is initialised. A part of it may be a gap.
    ///
    /// `None` without an archive, and in JDK 11, whose tables do not contain it.
    pub fn archive_range<M: Memory + ?Sized>(&self, memory: &M) -> Option<(u64, u64)> {
        let layout = self.layout.archive?;
        let (base, top) = (memory.read_u64(layout.base).ok()?, memory.read_u64(layout.top).ok()?);
        (base != 0 && base < top).then_some((base, top))
    }
}
