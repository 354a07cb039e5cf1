//! Why the walk of a stack ended, by name.

/// Text of a name, method, frame, stack or thread that was referred to and never received.
pub const UNKNOWN: &str = "[unknown]";

/// Reason of stacks that were walked to their end; assumed where a reason is missing.
pub const END_OF_STACK: &str = "end_of_stack";

/// Reasons of stacks that begin at their root: walked to a thread's or a virtual thread's first Java frame, or of a thread
/// that runs no Java code at all. Frames that are missing further up have a mark in their place.
pub const WHOLE_STACKS: [&str; 4] = [END_OF_STACK, "end_of_continuation", "end_past_thaw", "not_java"];

/// Returns whether the agent counts a walk with this reason as failed.
pub fn is_failure(stop: &str) -> bool {
    stop == "not_java" || !WHOLE_STACKS.contains(&stop)
}
