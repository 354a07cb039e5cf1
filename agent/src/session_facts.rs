//! The facts about the process that a stream begins with.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use sampler_thread::SessionFacts;
use sampler_thread::account::clock;
use stackwalk::HotSpot;

use crate::jvmti::Jvmti;
use crate::options::Options;
use crate::options::file_name::host_name;

/// Collects the facts of this process.
pub fn of_this_process(options: &Options, jvmti: &Jvmti, hotspot: &HotSpot) -> SessionFacts {
    let property = |name| jvmti.system_property(name).unwrap_or_default();
    // The kernel seeds a new RandomState; hashing nothing with it gives 64 random bits.
    let session_id = RandomState::new().build_hasher().finish();
    SessionFacts {
        magic: sampler_thread::MAGIC,
        wire_version: sampler_thread::WIRE_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        session_id,
        pid: std::process::id(),
        jvm_version: property("java.vm.version"),
        jvm_name: property("java.vm.name"),
        jdk_major: hotspot.jdk_major(),
        command: options.redaction.own_command(&property("sun.java.command")),
        host: host_name(),
        interval_ns: options.interval_ns(),
        kernel_tick_ns: clock::kernel_tick_nanos(),
        wall_clock_ns: clock::wall_nanos(),
        monotonic_ns: clock::monotonic_nanos(),
        token: String::new(),
        secret: Vec::new(),
    }
}
