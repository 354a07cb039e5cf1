//! Names of stop reasons: why the walk of a stack ended.

/// Text for a name, method, frame, stack or thread without a definition.
pub const UNKNOWN: &str = "[unknown]";

/// Reason of stacks that were walked to their end; the default if a reason is missing.
pub const END_OF_STACK: &str = "end_of_stack";

/// Reasons of complete stacks: walked to a thread's or a virtual thread's first Java frame, or of a thread without Java
/// code. A marker stands for frames that are missing in between.
pub const WHOLE_STACKS: [&str; 4] = [END_OF_STACK, "end_of_continuation", "end_past_thaw", "not_java"];

/// Returns whether the agent counts a walk with this reason as failed.
pub fn is_failure(stop: &str) -> bool {
    stop == "not_java" || !WHOLE_STACKS.contains(&stop)
}
