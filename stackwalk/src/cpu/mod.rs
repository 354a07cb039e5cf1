//! The seam to the CPU: registers, instructions and shapes of frames. No other file of this crate depends on a CPU.
//!
//! Each supported CPU is a folder. This file selects the one of the target, or aarch64 in the package
//! `stackwalk-aarch64`, which replays stacks of that CPU on any machine. What a folder declares as `pub(crate)` or
//! `pub` belongs to the seam, and all folders offer the same names (`agent/tests/tidy/twins.rs`); what is `pub(super)`
//! is for the folder alone. `rules` holds the types that the folders and the walker share, `defaults` the answers of a
//! CPU whose code has no such case: a new folder begins with all of them.
//!
//! All functions are pure: code bytes, registers or stack words in, a verdict out. They allocate nothing and panic on
//! no input.

#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
mod aarch64;
mod defaults;
mod rules;
pub(crate) mod words;
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
mod x86_64;

#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
pub use aarch64::*;
pub(crate) use rules::*;
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("stackwalk supports x86-64 and aarch64; another CPU needs a folder in src/cpu");
