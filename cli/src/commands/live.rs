//! Progress of a profile on a terminal: time, samples, their rate, the explained share, the hottest method.
//!
//! Problem: a long profile should show that it works, without disturbing the output of a program or a pipe.
//! Approach: a thread reads the growing recordings from time to time, and writes a line to standard error if that is a
//! terminal. If no program writes to the terminal, the line is rewritten in place; otherwise a new one is written.
//! Invariant: reading takes at most a twentieth of the time, and recordings beyond [`MAX_BYTES`] are not read.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use collector::ingest::StopHandle;
use profile::query::flat::{Flat, Order};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::Summary;
use profile::text::class_name::with_short_package;
use profile::text::quantity::{count, percent, share};

use crate::source::{now_ns, read_recording};

/// Time between two updates if the command has the terminal to itself.
const ALONE_PERIOD: Duration = Duration::from_secs(1);
/// Time until the first update, and between two, if a program shares the terminal.
const SHARED_FIRST: Duration = Duration::from_secs(3);
const SHARED_PERIOD: Duration = Duration::from_secs(10);
/// An update may take at most one part in this many of the time.
const SHARE: u32 = 20;
/// Largest recording that is read while it grows: some ten million samples.
const MAX_BYTES: u64 = 128 << 20;
/// Characters of a method's name above which its packages are shortened.
const NAME_COLUMNS: usize = 40;
/// Columns of a terminal of unknown size.
const COLUMNS: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Only this command writes to it.
    Alone,
    /// A program writes to it as well.
    Shared,
}

/// Shows progress until it is dropped.
pub struct Live {
    /// Dropping it ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Starts showing the sessions of `server`, if standard error is a terminal.
    pub fn start(server: StopHandle, terminal: Terminal) -> Self {
        let (end, ended) = channel();
        let body = move || {
            let begin = Instant::now();
            let mut period = if terminal == Terminal::Alone { ALONE_PERIOD } else { SHARED_FIRST };
            let mut before = (begin, 0);
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let look = Instant::now();
                let sessions = server.sessions();
                let seen = sessions.iter().filter_map(|session| Look::of(&session.path));
                if let Some(seen) = seen.max_by_key(|look| look.cpu_ns) {
                    show(
                        &seen.line(look.duration_since(begin), look.duration_since(before.0), before.1),
                        terminal,
                    );
                    before = (look, seen.samples);
                }
                let usual = if terminal == Terminal::Alone { ALONE_PERIOD } else { SHARED_PERIOD };
                period = usual.max(look.elapsed() * SHARE);
            }
            if terminal == Terminal::Alone {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        };
        let wanted = io::stderr().is_terminal();
        // Without a thread, the profile continues silently.
        let thread = wanted.then(|| std::thread::Builder::new().name("live".to_owned()).spawn(body).ok());
        Self { end: Some(end), thread: thread.flatten() }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported when it occurred.
            let _ = thread.join();
        }
    }
}

fn show(line: &str, terminal: Terminal) {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0);
    let columns = size.map_or(COLUMNS, |size| usize::from(size.ws_col));
    // A line that reaches the last column would be wrapped.
    let cut: String = line.chars().take(columns.saturating_sub(1)).collect();
    // The terminal may be gone.
    let _ = match terminal {
        Terminal::Alone => write!(io::stderr(), "\r\x1b[K{cut}"),
        Terminal::Shared => writeln!(io::stderr(), "{line}"),
    };
}

/// The figures of a growing recording.
#[derive(Debug, PartialEq)]
struct Look {
    samples: u64,
    cpu_ns: u64,
    explained: f64,
    /// The method with most CPU time of its own, and its share.
    hottest: Option<(String, f64)>,
}

impl Look {
    /// Reads a recording; `None` if it cannot be read, or is too large.
    fn of(path: &Path) -> Option<Self> {
        if fs::metadata(path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let recording = read_recording(path).ok()?;
        let summary = Summary::new(&ProcessProfile::whole(&recording).ok()?);
        let (flat, _) = Flat::of(&recording, &Selection::default(), now_ns()).ok()?;
        let (methods, _) = flat.top_methods(Order::SelfTime, 1);
        let hottest = methods.into_iter().next();
        Some(Self {
            samples: summary.samples,
            cpu_ns: summary.process_cpu_ns,
            explained: summary.explained,
            hottest: hottest.map(|method| (method.name, share(method.self_ns, flat.total_ns()))),
        })
    }

    /// Returns the line at the time `whole`, with the rate over the last `part`, before which there were `before`
    /// samples.
    fn line(&self, whole: Duration, part: Duration, before: u64) -> String {
        let rate = self.samples.saturating_sub(before) as f64 / part.as_secs_f64().max(0.001);
        let mut line =
            format!("tickwalk: {} s, {} samples ({rate:.0}/s)", whole.as_secs(), count(self.samples));
        // The first account takes some seconds to arrive.
        if self.explained > 0.0 {
            line.push_str(&format!(", {} explained", percent(self.explained)));
        }
        if let Some((name, share)) = &self.hottest {
            let name = with_short_package(name, 2, NAME_COLUMNS);
            line.push_str(&format!(", hottest {:.0} % {name}", share * 100.0));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_account_and_the_hottest_method_once_they_are_known() {
        let mut look = Look {
            samples: 1_500,
            cpu_ns: 1,
            explained: 0.987,
            hottest: Some(("shop.Cart.sum".into(), 0.25)),
        };
        assert_eq!(
            look.line(Duration::from_secs(12), Duration::from_secs(10), 500),
            "tickwalk: 12 s, 1,500 samples (100/s), 98.7 % explained, hottest 25 % shop.Cart.sum"
        );
        (look.samples, look.explained, look.hottest) = (0, 0.0, None);
        assert_eq!(
            look.line(Duration::from_secs(1), Duration::from_secs(1), 0),
            "tickwalk: 1 s, 0 samples (0/s)"
        );
    }
}
