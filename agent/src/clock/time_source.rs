//! The source of time stamps.
//!
//! Problem: time stamps of several processors are put in order. The time stamp counter is the cheapest source, but on
//! some machines the counters of two processors differ.
//! Approach: a kernel whose own clock source is the counter has checked that it is the same on all processors;
//! otherwise time stamps are those of the monotonic clock.
//! Sources: Linux `drivers/clocksource/arm_arch_timer.c`, `arch/x86/kernel/tsc.c` (`unsynchronized_tsc`),
//! `arch/x86/kernel/tsc_sync.c`; sysfs `devices/system/clocksource`.

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns whether the time stamp counter must not be used.
pub fn is_counter_unreliable() -> bool {
    match std::fs::read_to_string(CLOCK_SOURCE) {
        Ok(name) => !is_counter(name.trim()),
        // Without sysfs, the features of the processor decide.
        Err(_) => !has_invariant_counter(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
    }
}

/// Returns whether a clock source is the counter itself.
fn is_counter(name: &str) -> bool {
    if cfg!(target_arch = "aarch64") {
        name == "arch_sys_counter"
    } else {
        ["tsc", "hyperv_clocksource_tsc_page"].contains(&name)
    }
}

/// On aarch64 the architecture promises it.
fn has_invariant_counter(cpu_info: &str) -> bool {
    if cfg!(target_arch = "aarch64") {
        return true;
    }
    let flags = cpu_info.lines().find_map(|line| line.strip_prefix("flags"));
    let has = |flag| flags.is_some_and(|flags| flags.split_whitespace().any(|found| found == flag));
    has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_kernel_decides() {
        assert!(is_counter("arch_sys_counter") && !is_counter("tsc"));
        assert!(has_invariant_counter(""));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_kernel_decides() {
        assert!(is_counter("tsc"));
        assert!(!is_counter("kvm-clock") && !is_counter("hpet") && !is_counter("acpi_pm"));
        assert!(has_invariant_counter("processor: 0\nflags\t\t: fpu constant_tsc x nonstop_tsc\n"));
        assert!(!has_invariant_counter("flags\t\t: fpu constant_tsc\n"));
        assert!(!has_invariant_counter(""));
    }
}
