//! Names of stop reasons: why the walk of a stack ended.

use proto::ThreadState;

/// Text for a name, method, frame, stack or thread without a definition.
pub const UNKNOWN: &str = "[unknown]";

/// Reason of stacks that were walked to their end; the default if a reason is missing.
pub const END_OF_STACK: &str = "end_of_stack";

/// Reasons of complete stacks: walked to a thread's or a virtual thread's first Java frame, or of a thread without Java
/// code. A marker stands for frames that are missing in between.
const WHOLE_STACKS: [&str; 4] = [END_OF_STACK, "end_of_continuation", "end_past_thaw", "not_java"];

/// Returns the reason in the text of a root, which in a profile of wall time has the state of the thread as well.
pub fn reason(root: &str) -> &str {
    ThreadState::split(root).0
}

/// Returns whether all frames down to the root are there.
pub fn is_whole(root: &str) -> bool {
    WHOLE_STACKS.contains(&reason(root))
}

/// Returns whether the agent counts a walk with this reason as failed.
pub fn is_failure(root: &str) -> bool {
    reason(root) == "not_java" || !is_whole(root)
}
