//! Deciding when to list the threads of the process.
//!
//! Problem: threads of the VM and of native libraries start without an event, and the kernel's list of them costs a
//! microsecond a thread: with ten thousand threads a listing every 100 ms would take a tenth of a processor.
//! Approach: the number of threads is cheap to read. While it stays the same, a listing is due rarely; when it has
//! changed, as soon as listings take no more than a small share of the time.
//! Invariant: a listing is due at the latest a second or two hundred times its cost after the last one, whichever is
//! longer.
//!
//! Source: `/proc/self/task` has a link for each thread (Linux `fs/proc/base.c`, `proc_task_getattr`).

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Longest time between two listings that are cheap.
const UNCHANGED: Duration = Duration::from_secs(1);
/// Multiple of its own cost that a listing waits while the number of threads stays the same, and after it has changed.
const UNCHANGED_COSTS: u32 = 200;
const CHANGED_COSTS: u32 = 20;

/// The folder `/proc/self/task`, kept open, because finding it by its path is most of the work of a look.
#[derive(Debug)]
pub struct TaskFolder(Option<File>);

impl TaskFolder {
    /// Opens that of this process.
    pub fn open() -> Self {
        Self(File::open("/proc/self/task").ok())
    }

    /// Returns its links: the number of threads and a constant; 0 if they cannot be read.
    pub fn links(&self) -> u64 {
        let facts = self.0.as_ref().and_then(|folder| folder.metadata().ok());
        facts.map_or(0, |facts| facts.nlink())
    }
}

/// A listing that was made.
#[derive(Debug, Clone, Copy)]
struct Listing {
    ended: Instant,
    cost: Duration,
    links: u64,
}

/// Decides when a listing is due.
#[derive(Debug, Default)]
pub struct Discovery {
    last: Option<Listing>,
}

impl Discovery {
    /// Returns whether a listing is due, when the directory has `links`; `unsettled` counts as a change.
    pub fn is_due(&self, now: Instant, links: u64, unsettled: bool) -> bool {
        let Some(last) = self.last else { return true };
        let waited = now.saturating_duration_since(last.ended);
        // A directory that cannot be read counts as changed.
        if unsettled || links == 0 || links != last.links {
            waited >= last.cost * CHANGED_COSTS
        } else {
            waited >= UNCHANGED.max(last.cost * UNCHANGED_COSTS)
        }
    }

    /// Records a listing from `begun` to `ended`, before which the directory had `links`.
    pub fn listed(&mut self, begun: Instant, ended: Instant, links: u64) {
        self.last = Some(Listing { ended, cost: ended.saturating_duration_since(begun), links });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn expensive_listings_are_rare() {
        let start = Instant::now();
        let mut discovery = Discovery::default();
        assert!(discovery.is_due(start, 5, false), "the first");
        discovery.listed(start, start + MS, 5);
        let due = |discovery: &Discovery, ms: u32, links, unsettled| {
            discovery.is_due(start + MS + ms * MS, links, unsettled)
        };
        assert!(!due(&discovery, 999, 5, false));
        assert!(due(&discovery, 1000, 5, false));
        for (links, unsettled) in [(6, false), (4, false), (5, true), (0, false)] {
            assert!(!due(&discovery, 19, links, unsettled));
            assert!(due(&discovery, 20, links, unsettled));
        }
        discovery.listed(start, start + 10 * MS, 5);
        assert!(!due(&discovery, 2008, 5, false));
        assert!(due(&discovery, 2009, 5, false));
    }

    #[test]
    fn the_directory_has_a_link_for_each_thread() {
        let (ready, go) = (std::sync::Barrier::new(9), std::sync::Barrier::new(9));
        let folder = TaskFolder::open();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    ready.wait();
                    go.wait();
                });
            }
            ready.wait();
            // Other tests start and end threads meanwhile: a listing counts where nothing changed around it.
            let (links, listed) = std::iter::repeat_with(|| {
                (folder.links(), crate::kernel_threads::list().len(), folder.links())
            })
            .find_map(|(before, listed, after)| (before == after).then_some((before, listed as u64)))
            .unwrap_or_default();
            go.wait();
            assert!(listed > 8);
            assert_eq!(links, listed + 2);
        });
    }
}
