//! The class loaders that are never unloaded.
//!
//! Problem: names of most methods never become wrong, but the VM's tables do not name the permanent loaders.
//! Approach: get the platform and the system loader from Java once, and hold each by a global reference, which is the
//! address of a slot that the garbage collector updates.
//! Sources: HotSpot `runtime/jniHandles.hpp` (a reference is the slot's address with its kind in the low bits), JDK 11
//! to 25.

use std::ffi::CStr;
use std::sync::OnceLock;

use super::jni_calls::Jni;

/// Bits of a reference that hold its kind: two up to JDK 25; a slot is aligned to eight.
const KIND_BITS: u64 = 7;

const GETTERS: [&CStr; 2] = [c"getSystemClassLoader", c"getPlatformClassLoader"];

impl Jni {
    /// Returns the addresses of slots that hold the permanent loaders; fewer than two if Java has fewer. All
    /// profiles of a process use the same references.
    pub fn permanent_loaders(&self) -> Vec<u64> {
        static LOADERS: OnceLock<Vec<u64>> = OnceLock::new();
        let find = || GETTERS.iter().filter_map(|getter| self.loader(getter)).collect();
        LOADERS.get_or_init(find).clone()
    }

    fn loader(&self, getter: &CStr) -> Option<u64> {
        let class = self.boot_class(c"java.lang.ClassLoader")?;
        let loader = self.call_getter(class, getter, c"()Ljava/lang/ClassLoader;")?;
        // These loaders live as long as the VM, so the reference is kept.
        let slot = self.keep(loader)? as u64 & !KIND_BITS;
        self.release(loader);
        self.release(class);
        (slot != 0).then_some(slot)
    }
}
