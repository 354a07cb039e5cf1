//! Names and kinds of threads, and the carriers of virtual threads.

use proto::v1::{Thread, ThreadKind};
use rustc_hash::FxHashSet;

/// Returns the id of the thread whose account includes `thread`: the carrier of a virtual thread, whose CPU clock it
/// uses.
pub fn account_owner(thread: &Thread) -> u32 {
    if thread.kind() == ThreadKind::Virtual && thread.carrier != 0 { thread.carrier } else { thread.id }
}

/// Returns `thread` with a default name if it has none, like most virtual threads.
pub fn named(mut thread: Thread) -> Thread {
    if thread.kind() == ThreadKind::Virtual && thread.name.is_empty() {
        thread.name = default_name(thread.java_id);
    }
    thread
}

pub fn default_name(java_id: i64) -> String {
    format!("virtual thread #{java_id}")
}

/// Returns `java.lang.Thread.threadId()` of a virtual thread, which is the same on all its carriers; 0 for other
/// threads.
pub fn virtual_id(thread: &Thread) -> i64 {
    if thread.kind() == ThreadKind::Virtual { thread.java_id } else { 0 }
}

/// Returns the [`virtual_id`]s of the virtual threads among `threads`.
pub fn virtual_ids<'t>(threads: impl Iterator<Item = &'t Thread>) -> FxHashSet<i64> {
    threads.map(virtual_id).filter(|&id| id != 0).collect()
}

/// Returns a thread kind in one word, as in parameters and answers.
pub fn kind_text(kind: ThreadKind) -> &'static str {
    match kind {
        ThreadKind::Java => "java",
        ThreadKind::Compiler => "compiler",
        ThreadKind::Gc => "gc",
        ThreadKind::Vm => "vm",
        ThreadKind::Virtual => "virtual",
        // Threads of unknown kind are shown as native threads.
        ThreadKind::Native | ThreadKind::Unspecified => "native",
    }
}
