//! Keeps the library mapped after its last user has closed it: a timer's signal may still be queued for its handler.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
