//! Decides when to list the threads of the process.
//!
//! Problem: threads of the VM and of native libraries start without an event, and listing them costs a microsecond a
//! thread: with ten thousand threads, a listing every 100 ms would take a tenth of a processor.
//! Approach: the number of threads and the newest thread id of the system or container are cheap to read. While both
//! are the same, no thread has started or ended. If only the number is the same, a listing is due rarely; if it has
//! changed, as soon as listings take no more than a small share of the time.
//! Invariant: while threads start anywhere on the system, the next listing is due after a second or two hundred times
//! the cost of the last one, whichever is longer; else ten times as late.
//!
//! Sources: `/proc/self/task` has a link for each thread (Linux `fs/proc/base.c`, `proc_task_getattr`); the last
//! number in `/proc/loadavg` is the newest id of a thread in the reader's pid namespace (`fs/proc/loadavg.c`,
//! `loadavg_proc_show`).

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use sampler_thread::descriptor::OwnedDescriptor;

/// Longest time between two listings that are cheap.
const UNCHANGED: Duration = Duration::from_secs(1);
/// The same while no thread starts on the system, in case the kernel's numbers mean something else.
const QUIET: Duration = Duration::from_secs(10);
/// A listing waits this multiple of its own cost while the number of threads is the same, and after it has changed.
const UNCHANGED_COSTS: u32 = 200;
const CHANGED_COSTS: u32 = 20;

/// Longest text of `/proc/loadavg`.
const LOADAVG_BYTES: usize = 128;

/// Numbers from the kernel that change with every start or end of a thread; `None` if they cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// Links of `/proc/self/task`: the number of threads and a constant.
    pub links: Option<u64>,
    /// Newest thread id on the system, or in the container.
    pub newest: Option<u64>,
}

/// The kernel's files, kept open, because finding them by their paths is most of the work.
#[derive(Debug)]
pub struct ThreadFiles {
    tasks: Option<OwnedDescriptor<File>>,
    loadavg: Option<OwnedDescriptor<File>>,
}

const TASKS: &str = "/proc/self/task";
const LOADAVG: &str = "/proc/loadavg";

impl ThreadFiles {
    /// Opens those of this process.
    pub fn open() -> Self {
        Self { tasks: OwnedDescriptor::open(TASKS).ok(), loadavg: OwnedDescriptor::open(LOADAVG).ok() }
    }

    /// Reads them.
    pub fn look(&self) -> Look {
        let links = look_at(self.tasks.as_ref(), TASKS, |folder| Some(folder.metadata().ok()?.nlink()));
        Look { links, newest: look_at(self.loadavg.as_ref(), LOADAVG, newest) }
    }
}

/// Looks at a file that is kept open, or opens it again if the program has closed its descriptor.
fn look_at(
    kept: Option<&OwnedDescriptor<File>>,
    path: &str,
    look: impl FnOnce(&File) -> Option<u64>,
) -> Option<u64> {
    match kept?.get() {
        Ok(file) => look(file),
        Err(_) => look(&File::open(path).ok()?),
    }
}

fn newest(loadavg: &File) -> Option<u64> {
    let mut text = [0; LOADAVG_BYTES];
    let length = loadavg.read_at(&mut text, 0).ok()?;
    let text = str::from_utf8(text.get(..length)?).ok()?;
    // Kernels without this number report 0.
    text.split_whitespace().next_back()?.parse().ok().filter(|&newest| newest != 0)
}

#[derive(Debug, Clone, Copy)]
struct Listing {
    ended: Instant,
    cost: Duration,
    look: Look,
}

/// Decides when a listing is due.
#[derive(Debug, Default)]
pub struct Discovery {
    last: Option<Listing>,
}

impl Discovery {
    /// Returns whether a listing is due after a `look`; `unsettled` counts as a change.
    pub fn is_due(&self, now: Instant, look: Look, unsettled: bool) -> bool {
        let Some(last) = self.last else { return true };
        let waited = now.saturating_duration_since(last.ended);
        // A number that cannot be read counts as changed.
        let is_same = |now: Option<u64>, before: Option<u64>| now.is_some() && now == before;
        if unsettled || !is_same(look.links, last.look.links) {
            return waited >= last.cost * CHANGED_COSTS;
        }
        let least = if is_same(look.newest, last.look.newest) { QUIET } else { UNCHANGED };
        waited >= least.max(last.cost * UNCHANGED_COSTS)
    }

    /// Records a listing from `begun` to `ended` after a `look`.
    pub fn listed(&mut self, begun: Instant, ended: Instant, look: Look) {
        self.last = Some(Listing { ended, cost: ended.saturating_duration_since(begun), look });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn look(links: u64, newest: u64) -> Look {
        let known = |number: u64| Some(number).filter(|&number| number != 0);
        Look { links: known(links), newest: known(newest) }
    }

    #[test]
    fn expensive_listings_are_rare() {
        let start = Instant::now();
        let mut discovery = Discovery::default();
        assert!(discovery.is_due(start, look(5, 9), false), "the first");
        discovery.listed(start, start + MS, look(5, 9));
        let due = |discovery: &Discovery, ms: u32, look, unsettled| {
            discovery.is_due(start + MS + ms * MS, look, unsettled)
        };
        assert!(!due(&discovery, 9_999, look(5, 9), false), "no thread has started or ended");
        assert!(due(&discovery, 10_000, look(5, 9), false));
        for newest in [10, 8, 0] {
            assert!(!due(&discovery, 999, look(5, newest), false));
            assert!(due(&discovery, 1000, look(5, newest), false));
        }
        for (links, unsettled) in [(6, false), (4, false), (5, true), (0, false)] {
            assert!(!due(&discovery, 19, look(links, 9), unsettled));
            assert!(due(&discovery, 20, look(links, 9), unsettled));
        }
        discovery.listed(start, start + 10 * MS, look(5, 9));
        assert!(!due(&discovery, 2008, look(5, 10), false));
        assert!(due(&discovery, 2009, look(5, 10), false));
        discovery.listed(start, start + 100 * MS, look(5, 9));
        assert!(!due(&discovery, 20_098, look(5, 9), false));
        assert!(due(&discovery, 20_099, look(5, 9), false));
        discovery.listed(start, start + MS, look(5, 0));
        assert!(due(&discovery, 1000, look(5, 0), false), "the newest id cannot be read");
    }

    #[test]
    fn a_thread_that_starts_has_a_newer_id() {
        let files = ThreadFiles::open();
        let before = files.look().newest;
        let during = std::thread::spawn(move || ThreadFiles::open().look().newest).join().expect("no panic");
        assert!(before.is_some(), "this kernel reports it");
        assert_ne!(before, during);
    }

    #[test]
    fn the_directory_has_a_link_for_each_thread() {
        let (ready, go) = (std::sync::Barrier::new(9), std::sync::Barrier::new(9));
        let files = ThreadFiles::open();
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
                (files.look().links, crate::threads::kernel::list().len(), files.look().links)
            })
            .find_map(|(before, listed, after)| (before == after).then_some((before, listed as u64)))
            .unwrap_or_default();
            go.wait();
            assert!(listed > 8);
            assert_eq!(links, Some(listed + 2));
        });
    }
}
