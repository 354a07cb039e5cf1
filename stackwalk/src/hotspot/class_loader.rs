//! The class loader that keeps a method alive.
//!
//! Metadata is freed with its `ClassLoaderData`. Those of the boot, platform and system loaders live as long as the
//! VM; hidden classes (and the anonymous ones of JDK 11) have one of their own and go alone.
//! The slot that holds a loader's oop identifies the loader: the collector updates such slots, and two slots with equal
//! contents hold the same object.
//! Sources: `classfile/classLoaderData.{hpp,cpp}`, `oops/oopHandle.hpp`, JDK 11 to 25.

use super::HotSpot;
use super::method::MethodError;
use crate::frame::Method;
use crate::memory::{Memory, at};

/// The owner of a class, which keeps it alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadedBy {
    /// The boot loader, which is never unloaded.
    Boot,
    Loader {
        /// Address of its `ClassLoaderData`.
        data: u64,
        /// Address of the slot that holds its oop.
        slot: u64,
    },
    /// No loader: a hidden class.
    Itself,
}

impl HotSpot {
    /// Returns the owner of the class of `method`; `None` if this VM's tables lack the fields.
    ///
    /// # Errors
    /// [`MethodError`] if `method` is not a method.
    pub fn loaded_by<M: Memory + ?Sized>(
        &self,
        memory: &M,
        method: Method,
    ) -> Result<Option<LoadedBy>, MethodError> {
        let Some(layout) = self.layout.loader else { return Ok(None) };
        let holder = self.class_of(memory, method)?.0;
        let data = memory.read_u64(at(holder, layout.klass_loader_data))?;
        if data == 0 || !data.is_multiple_of(8) {
            return Err(MethodError::BadPointer(data));
        }
        if memory.read_u8(at(data, layout.own_class))? != 0 {
            return Ok(Some(LoadedBy::Itself));
        }
        let slot = memory.read_u64(at(data, layout.loader_handle))?;
        Ok(Some(if slot == 0 { LoadedBy::Boot } else { LoadedBy::Loader { data, slot } }))
    }
}
