//! Selects aarch64 in `src/cpu/mod.rs`, whatever the machine.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(stackwalk_aarch64)");
    println!("cargo::rustc-cfg=stackwalk_aarch64");
    println!("cargo::rerun-if-changed=build.rs");
}
