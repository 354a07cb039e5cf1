//! One session: the process that was profiled, its threads, and its account of CPU time.
//!
//! Times are nanoseconds since the epoch.

pub mod account;
pub mod delivery;
pub mod mode;
pub mod sampling;
pub mod thread;
pub mod trust;
pub mod warnings;

use std::borrow::Cow;

use proto::rows::Row;
use proto::statistics::carry_over;
use proto::v1::{Hello, Statistics, Thread, ThreadAccount};
use rustc_hash::FxHashMap;

use crate::session::mode::Mode;
use crate::session::thread::named;

/// A process without messages for this time is silent; agents send heartbeats far more often.
const SILENT_NS: u64 = 60_000_000_000;
/// State of a session that goes on.
pub(crate) const LIVE: &str = "live";

/// Everything about a session but its samples.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The agent's introduction.
    pub hello: Hello,
    /// Start of the session: of its clocks, or its first sample if that is older.
    pub first_ns: u64,
    /// Time of its last message, by the clock of the agent.
    pub last_ns: u64,
    /// Why the agent ended; `None` if its last message is missing.
    pub goodbye: Option<String>,
    /// The latest statistics, without accounts of threads; `None` before the first.
    pub statistics: Option<Statistics>,
    /// Messages whose numbers were skipped.
    pub missing_messages: u64,
    /// Sample batches with columns of different length; their complete rows are counted.
    pub uneven_batches: u64,
    /// Samples received.
    pub samples: u64,
    /// Samples whose newest Java frame is that of a later point; part of `samples`.
    pub biased: u64,
    /// CPU time that they represent.
    pub sampled_ns: u64,
    /// Samples whose stack was never defined.
    pub unknown_samples: u64,
    /// Number of the last message.
    pub last_sequence: u64,
    /// Kernel time of accounts that are not kept.
    pub retired_kernel_ns: u64,
    /// Sampled time of accounts that are not kept.
    pub retired_sampled_ns: u64,
    threads: FxHashMap<u32, Thread>,
    accounts: FxHashMap<u32, ThreadAccount>,
}

impl Session {
    /// Returns whether it goes on at `now_ns`, in the words of the API.
    pub(crate) fn state(&self, now_ns: u64) -> &'static str {
        match (&self.goodbye, now_ns.saturating_sub(self.last_ns) > SILENT_NS) {
            (Some(_), _) => "ended",
            (None, true) => "silent",
            (None, false) => LIVE,
        }
    }

    /// Returns a short name of the program: the one it was given, else its main class or jar without path and
    /// arguments.
    pub fn service(&self) -> &str {
        if !self.hello.service.is_empty() {
            return &self.hello.service;
        }
        let first = self.hello.command.split_whitespace().next().unwrap_or("");
        let name = first.rsplit('/').next().unwrap_or(first);
        if name.is_empty() { "java" } else { name }
    }

    /// Returns the name of the program, with what samples stand for unless that is CPU time.
    pub fn subject(&self) -> String {
        match self.mode() {
            Mode::CpuTime => self.service().to_owned(),
            mode => format!("{}, {}", self.service(), mode.time()),
        }
    }

    pub fn mode(&self) -> Mode {
        Mode::of(&self.hello)
    }

    /// Returns the value of a label: `mode`, `service`, `host`, `jvm`, `pid`, `command`, or one that the process was
    /// given.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        Some(match key {
            "service" => self.service().into(),
            "host" => self.hello.host.as_str().into(),
            "jvm" => self.hello.jvm_version.as_str().into(),
            "pid" => self.hello.pid.to_string().into(),
            "command" => self.hello.command.as_str().into(),
            _ => {
                let mut labels = self.hello.labels.iter().filter_map(|label| label.split_once('='));
                let own = labels.find(|(own, _)| *own == key).map(|(_, value)| value);
                own.or((key == "mode").then(|| self.mode().name()))?.into()
            }
        })
    }

    /// Returns whether message number `sequence` is new, and counts the messages that are missing before it.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if sequence <= self.last_sequence {
            return false;
        }
        self.missing_messages += sequence - self.last_sequence - 1;
        self.last_sequence = sequence;
        true
    }

    /// Sets the agent's introduction.
    pub fn introduce(&mut self, hello: Hello) {
        self.first_ns = hello.wall_clock_ns;
        self.last_ns = self.last_ns.max(hello.wall_clock_ns);
        self.hello = hello;
    }

    /// Converts a time on the agent's monotonic clock to nanoseconds since the epoch; `shift_ms` is how far the agent's
    /// wall clock had moved against it since the `Hello`.
    pub fn wall_ns(&self, monotonic_ns: u64, shift_ms: i64) -> u64 {
        let since = monotonic_ns.wrapping_sub(self.hello.monotonic_ns) as i64;
        let shift_ns = shift_ms.saturating_mul(1_000_000);
        self.hello.wall_clock_ns.saturating_add_signed(since).saturating_add_signed(shift_ns)
    }

    /// Records the arrival of a message with this time and this shift, as [`wall_ns`](Self::wall_ns).
    pub fn see(&mut self, monotonic_ns: u64, shift_ms: i64) {
        self.last_ns = self.last_ns.max(self.wall_ns(monotonic_ns, shift_ms));
    }

    /// Counts a row of samples taken at `wall_ns`; `is_known` is true if its stack was defined.
    pub fn count(&mut self, row: &Row, wall_ns: u64, is_known: bool) {
        self.first_ns = self.first_ns.min(wall_ns);
        self.last_ns = self.last_ns.max(wall_ns);
        self.samples = self.samples.saturating_add(row.count);
        self.biased = self.biased.saturating_add(if row.is_biased() { row.count } else { 0 });
        self.sampled_ns = self.sampled_ns.saturating_add(row.cpu_ns);
        self.unknown_samples = self.unknown_samples.saturating_add(if is_known { 0 } else { row.count });
    }

    pub fn thread(&self, id: u32) -> Option<&Thread> {
        self.threads.get(&id)
    }

    /// Returns all introduced threads, in no particular order.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    /// Adds or replaces a thread, and returns the replaced one.
    pub fn add_thread(&mut self, thread: Thread) -> Option<Thread> {
        self.threads.insert(thread.id, named(thread))
    }

    /// Removes all threads and accounts.
    pub fn clear_threads(&mut self) {
        self.threads.clear();
        self.accounts.clear();
    }

    pub fn account(&self, thread: u32) -> Option<&ThreadAccount> {
        self.accounts.get(&thread)
    }

    /// Returns the latest accounts of all threads, in no particular order.
    pub fn accounts(&self) -> impl ExactSizeIterator<Item = &ThreadAccount> {
        self.accounts.values()
    }

    /// Adds or replaces an account, and returns the replaced one.
    pub fn add_account(&mut self, account: ThreadAccount) -> Option<ThreadAccount> {
        self.accounts.insert(account.thread, account)
    }

    /// Sets the latest statistics; fields that they omit keep their values.
    pub fn add_statistics(&mut self, mut statistics: Statistics) {
        for account in std::mem::take(&mut statistics.threads) {
            self.add_account(account);
        }
        if let Some(older) = &self.statistics {
            carry_over(older, &mut statistics);
        }
        self.statistics = Some(statistics);
    }

    /// Removes and returns the account of a thread; its figures remain in the sums of the process.
    pub fn retire(&mut self, thread: u32) -> Option<ThreadAccount> {
        let account = self.accounts.remove(&thread)?;
        self.retired_kernel_ns =
            self.retired_kernel_ns.saturating_add(account.kernel_ns.saturating_sub(account.carried_ns));
        self.retired_sampled_ns = self.retired_sampled_ns.saturating_add(account.sampled_ns);
        Some(account)
    }

    /// Removes the accounts of all threads like [`retire`](Self::retire).
    pub fn retire_all(&mut self) {
        let threads: Vec<u32> = self.accounts.keys().copied().collect();
        threads.into_iter().for_each(|thread| drop(self.retire(thread)));
    }

    /// Returns the CPU time of all threads by the kernel's clocks since their timers ran.
    ///
    /// Accounts are sent when they change, so a reader of a part of the messages lacks some; older agents sent no sum.
    pub fn kernel_ns(&self) -> u64 {
        let of_accounts = self.accounts.values().fold(self.retired_kernel_ns, |sum, account| {
            sum.saturating_add(account.kernel_ns.saturating_sub(account.carried_ns))
        });
        self.statistics.as_ref().map_or(0, |statistics| statistics.kernel_ns).max(of_accounts)
    }

    /// Returns the CPU time of all samples that the agent counted as sent, as [`kernel_ns`](Self::kernel_ns).
    pub fn accounted_sampled_ns(&self) -> u64 {
        let accounts = self.accounts.values();
        let of_accounts =
            accounts.fold(self.retired_sampled_ns, |sum, account| sum.saturating_add(account.sampled_ns));
        self.statistics.as_ref().map_or(0, |statistics| statistics.sampled_ns).max(of_accounts)
    }
}
