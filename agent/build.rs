//! The library is never unloaded, whoever closes it: timers' signals may be queued for its handler as long as the
//! process lives.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
