//! The facts about the process that a stream begins with.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use sampler_thread::SessionFacts;
use sampler_thread::clock;
use stackwalk::HotSpot;

use crate::jvmti::Jvmti;
use agent_options::file_name::host_name;
use agent_options::{Mode, Options};

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
        service: options.service.clone().unwrap_or_else(|| {
            service_of(|name| std::env::var(name).ok(), &property("spring.application.name"))
        }),
        labels: options.labels.clone(),
        mode: match options.mode {
            Mode::Wall => sampler_thread::WireMode::Wall,
            Mode::Jvmti => sampler_thread::WireMode::Jvmti,
            Mode::CpuTime | Mode::Api => sampler_thread::WireMode::CpuTime,
        }
        .into(),
    }
}

/// Returns the name that the environment or a property gives the program; empty if none does.
///
/// Source of the variables: OpenTelemetry specification, "SDK environment variables".
fn service_of(variable: impl Fn(&str) -> Option<String>, application: &str) -> String {
    let of_resource = || {
        let attributes = variable("OTEL_RESOURCE_ATTRIBUTES")?;
        let named = attributes.split(',').find_map(|pair| pair.trim().strip_prefix("service.name="))?;
        Some(named.to_owned())
    };
    let is_given = |name: &String| !name.is_empty();
    let named = variable("OTEL_SERVICE_NAME").filter(is_given).or_else(|| of_resource().filter(is_given));
    named.unwrap_or_else(|| application.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program() {
        let resource =
            |name: &str| (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| "a=b, service.name=shop".into());
        assert_eq!(service_of(resource, "spring"), "shop");
        let both =
            |name: &str| Some(if name == "OTEL_SERVICE_NAME" { "cart" } else { "service.name=shop" }.into());
        assert_eq!(service_of(both, "spring"), "cart");
        assert_eq!(service_of(|_| None, "spring"), "spring");
        assert_eq!(service_of(|_| Some(String::new()), ""), "");
    }
}
