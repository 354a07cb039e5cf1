//! Threads that wait to enter a monitor.

use crate::dictionary::Dictionary;

/// Functions of libjvm that enter a monitor.
const MONITORS: [&str; 3] =
    ["ObjectMonitor::enter", "complete_monitor_locking", "InterpreterRuntime::monitorenter"];

/// Returns whether a thread that waits with these frames, the newest first, waits for a monitor.
pub(super) fn is_blocked(dictionary: &Dictionary, frames: &[u32]) -> bool {
    let of_jvm = frames.iter().take_while(|&&frame| dictionary.frame(frame).method == 0);
    let mut names = of_jvm.map(|&frame| dictionary.frame_text(frame));
    names.any(|name| MONITORS.iter().any(|monitor| name.contains(monitor)))
}
