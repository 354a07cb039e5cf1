//! Progress of reading a lake, on a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lake::read::Progress;
use profile::text::quantity::count;

/// Reading that takes less time shows nothing.
const QUIET: Duration = Duration::from_secs(1);

/// Returns a function that shows the progress of reading in a line of standard error, and removes it at the end.
pub fn of_lake() -> impl Fn(Option<Progress>) + Send + Sync {
    let (begin, is_shown) = (Instant::now(), AtomicBool::new(false));
    move |progress| {
        // The terminal may be gone. Relaxed: the flag guards nothing else.
        match progress {
            Some(Progress { requests, bytes, files })
                if begin.elapsed() >= QUIET && io::stderr().is_terminal() =>
            {
                is_shown.store(true, Ordering::Relaxed);
                let (files, megabytes) = (count(files), count(bytes >> 20));
                let _ = write!(
                    io::stderr(),
                    "\r\x1b[Kreading the lake: {megabytes} MB of {files} files, {} requests",
                    count(requests)
                );
            }
            None if is_shown.swap(false, Ordering::Relaxed) => {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
            _ => {}
        }
    }
}
