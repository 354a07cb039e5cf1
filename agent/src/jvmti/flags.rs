//! Switches `DebugNonSafepoints` on.
//!
//! Problem: without it the JIT records positions only at safepoints, and a sample between two of them is charged to
//! the wrong line or inlined method.
//! Approach: set the flag's byte, unless the user chose a value; in a running VM it acts on code compiled from then on.
//! Sources: HotSpot `runtime/flags/jvmFlag.hpp` (origin in the low four bits of the flags word, 0 = default),
//! `code/debugInfoRec.cpp` (the flag is read once per compilation).

use stackwalk::{HotSpot, Memory};

/// Switches the flag on, unless the user has chosen a value.
pub fn switch_on(hotspot: &HotSpot, memory: &impl Memory) {
    let Some(flag) = hotspot.flag(memory, "DebugNonSafepoints") else { return };
    if !flag.is_default() {
        tracing::info!("DebugNonSafepoints keeps the value of the command line");
        return;
    }
    let value = flag.value_address as *mut u8;
    // SAFETY: the VM's own table names this address as the flag's bool, which is writable data of libjvm; a
    // compiler thread that reads the byte meanwhile finds either value.
    unsafe { value.write_volatile(1) };
}
