//! The tickwalk command.
fn main() {}
