//! Threads in the backlog: their entries and accounts.
//!
//! Problem: a program may start ten million short threads while the collector is absent.
//! Approach: from [`MAX_WAITING`] entries on, the threads with the least CPU time are folded until half of the entries
//! are left: ended platform threads into one entry for each kind of thread, named [`ENDED`]; virtual threads into their
//! carrier, which has their account anyway.
//! Invariants: a platform thread is folded with its account and all its rows, so that each account agrees with its
//! samples and the sums stay the same. Live threads and threads whose entry was sent are not folded.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use proto::v1::{Thread, ThreadAccount, ThreadKind};
use rustc_hash::FxHasher;

use super::merge::Merged;
use crate::account::add_lost;

/// Most entries before threads are folded; each takes some 300 bytes with its account.
pub const MAX_WAITING: usize = 16_384;

/// Most virtual threads whose carriers are kept, the newest ones; more than the sampler keeps ids of.
const MAX_CARRIERS: usize = 65_536;

/// Name of the entry for threads that started and ended during an absence of the collector.
pub const ENDED: &str = "[ended threads]";

/// Ids from here down stand for ended threads, one for each kind; agents use ids from 1 on, and collectors use higher
/// ids.
const LAST_ID: u32 = (1 << 31) - 1;

type Map<V> = HashMap<u32, V, BuildHasherDefault<FxHasher>>;

/// The carrier of a virtual thread.
#[derive(Debug, Clone, Copy)]
struct Carrier {
    id: u32,
    /// True if its rows are kept under the carrier's id, because its entry was given up.
    is_folded: bool,
}

/// Entries and accounts that wait.
#[derive(Debug)]
pub struct Threads {
    waiting: Map<Thread>,
    /// Accounts, each in its newest state.
    accounts: Map<ThreadAccount>,
    /// Platform threads whose entries were sent, until they have ended and no row refers to them.
    sent: Map<Thread>,
    /// Those of them that have ended.
    ended_sent: Vec<u32>,
    carriers: BTreeMap<u32, Carrier>,
    /// Sums of the accounts of folded threads since the start of the session, by id.
    sums: Map<ThreadAccount>,
    limit: usize,
    /// Number of entries beyond which threads are folded: the limit, or more if too many cannot be folded.
    fold_threshold: usize,
    /// True if live virtual threads may have been folded, so that their entries must be sent again.
    has_missing: bool,
}

impl Threads {
    /// Nothing waits; at most about `limit` entries of ended threads may.
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: Map::default(),
            accounts: Map::default(),
            sent: Map::default(),
            ended_sent: Vec::new(),
            carriers: BTreeMap::new(),
            sums: Map::default(),
            limit,
            fold_threshold: limit,
            has_missing: false,
        }
    }

    pub fn may_bypass(&self) -> bool {
        self.waiting.is_empty() && !self.has_missing
    }

    /// Returns whether entries of virtual threads must be sent again.
    pub fn has_missing(&self) -> bool {
        self.has_missing
    }

    /// Notes that the sampler sends the entry of every thread again with its next sample.
    pub fn begin_again(&mut self) {
        self.has_missing = false;
        self.carriers.values_mut().for_each(|carrier| carrier.is_folded = false);
    }

    pub fn accounts(&self) -> usize {
        self.accounts.len()
    }

    pub fn record_sent(&mut self, threads: &[Thread]) {
        for thread in threads {
            self.record_carrier(thread);
            if thread.kind() != ThreadKind::Virtual {
                self.sent.insert(thread.id, thread.clone());
            }
        }
    }

    /// Keeps entries until there is space.
    pub fn keep(&mut self, threads: Vec<Thread>) {
        for thread in threads {
            self.record_carrier(&thread);
            if self.id(thread.id) == thread.id {
                self.waiting.insert(thread.id, thread);
            }
        }
    }

    /// Keeps an account until there is space.
    pub fn keep_account(&mut self, account: ThreadAccount) {
        self.accounts.insert(account.thread, account);
    }

    /// Takes the entries, to be sent.
    pub fn take_entries(&mut self) -> Vec<Thread> {
        let entries: Vec<Thread> = std::mem::take(&mut self.waiting).into_values().collect();
        self.record_sent(&entries);
        self.fold_threshold = self.limit;
        entries
    }

    /// Takes the accounts, to be sent after the entries.
    pub fn take_accounts(&mut self) -> Vec<ThreadAccount> {
        let accounts: Vec<ThreadAccount> = std::mem::take(&mut self.accounts).into_values().collect();
        self.ended_sent.extend(accounts.iter().filter(|account| account.ended).map(|account| account.thread));
        accounts
    }

    /// Removes ended threads; to be called only when no row refers to them.
    pub fn forget_ended(&mut self) {
        for thread in std::mem::take(&mut self.ended_sent) {
            self.sent.remove(&thread);
        }
    }

    /// Returns the id under which samples of `thread` are kept.
    pub fn id(&self, thread: u32) -> u32 {
        match self.carriers.get(&thread) {
            Some(carrier) if carrier.is_folded => carrier.id,
            _ => thread,
        }
    }

    /// Returns the same while the sampler may refer to entries that the collector has lost.
    pub fn id_after_loss(&self, thread: u32) -> u32 {
        let is_known = self.waiting.contains_key(&thread) || self.sent.contains_key(&thread);
        self.carriers.get(&thread).filter(|_| !is_known).map_or(thread, |carrier| carrier.id)
    }

    /// Adapts to a collector that lost every entry.
    ///
    /// Entries of platform threads that rows may refer to wait again; rows of virtual threads without a waiting entry
    /// move to their carriers.
    pub fn send_again(&mut self, rows: &mut Merged) {
        for (&id, thread) in &self.sent {
            self.waiting.entry(id).or_insert_with(|| thread.clone());
        }
        let mut into: Map<u32> = Map::default();
        for thread in rows.cpu_by_thread().into_keys().filter(|id| !self.waiting.contains_key(id)) {
            into.extend(self.carriers.get(&thread).map(|carrier| (thread, carrier.id)));
        }
        rows.fold_threads(&into);
    }

    /// Folds threads, and their rows in `rows`, if too many wait.
    pub fn fold(&mut self, rows: &mut Merged) {
        if self.waiting.len() <= self.fold_threshold {
            return;
        }
        let cpu_ns = rows.cpu_by_thread();
        let mut candidates: Vec<(u64, u32)> = self
            .waiting
            .values()
            .filter(|thread| self.may_fold(thread))
            .map(|thread| (cpu_ns.get(&thread.id).copied().unwrap_or(0), thread.id))
            .collect();
        candidates.sort_unstable();
        candidates.truncate(self.waiting.len().saturating_sub(self.limit / 2));
        let mut into: Map<u32> = Map::default();
        for (_, id) in candidates {
            let Some(thread) = self.waiting.remove(&id) else { continue };
            let target = match thread.kind() {
                ThreadKind::Virtual => self.fold_virtual(&thread),
                kind => self.fold_ended(id, kind),
            };
            into.insert(id, target);
        }
        self.follow_carriers(&mut into);
        rows.fold_threads(&into);
        let left = self.waiting.len();
        self.fold_threshold = if left > self.limit / 2 { left.saturating_mul(2) } else { self.limit };
    }

    fn may_fold(&self, thread: &Thread) -> bool {
        if thread.kind() == ThreadKind::Virtual {
            return thread.carrier != 0;
        }
        let has_ended = self.accounts.get(&thread.id).is_some_and(|account| account.ended);
        has_ended && !self.sent.contains_key(&thread.id)
    }

    fn fold_virtual(&mut self, thread: &Thread) -> u32 {
        let carrier = Carrier { id: thread.carrier, is_folded: true };
        self.remember(thread.id, carrier);
        self.has_missing = true;
        thread.carrier
    }

    /// Adds the account of a platform thread to that of its kind.
    fn fold_ended(&mut self, id: u32, kind: ThreadKind) -> u32 {
        let target = LAST_ID - kind as u32;
        let sum = self
            .sums
            .entry(target)
            .or_insert_with(|| ThreadAccount { thread: target, ..ThreadAccount::default() });
        if let Some(account) = self.accounts.remove(&id) {
            add(sum, &account);
        }
        self.accounts.insert(target, sum.clone());
        if !self.sent.contains_key(&target) {
            let name = ENDED.to_owned();
            self.waiting.insert(target, Thread { id: target, name, kind: kind.into(), ..Thread::default() });
        }
        target
    }

    /// Folds virtual threads whose carriers were folded, because every thread needs the entry of its carrier.
    fn follow_carriers(&mut self, into: &mut Map<u32>) {
        let carried = self.waiting.values().filter(|thread| into.contains_key(&thread.carrier));
        let carried: Vec<(u32, u32)> = carried.map(|thread| (thread.id, thread.carrier)).collect();
        for (id, carrier) in carried {
            self.waiting.remove(&id);
            into.insert(id, carrier);
        }
        // Carriers are platform threads, so that one step is enough.
        let targets: Vec<(u32, u32)> =
            into.iter().filter_map(|(&id, carrier)| Some((id, *into.get(carrier)?))).collect();
        into.extend(targets);
    }

    fn record_carrier(&mut self, thread: &Thread) {
        if thread.carrier != 0 {
            let is_folded = self.carriers.get(&thread.id).is_some_and(|carrier| carrier.is_folded);
            self.remember(thread.id, Carrier { id: thread.carrier, is_folded });
        }
    }

    fn remember(&mut self, id: u32, carrier: Carrier) {
        self.carriers.insert(id, carrier);
        if self.carriers.len() > MAX_CARRIERS {
            self.carriers.pop_first();
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.waiting.len()
    }
}

/// Adds an account to a sum. The sum is never marked as ended, because collectors remove ended accounts.
fn add(sum: &mut ThreadAccount, account: &ThreadAccount) {
    for (sum, more) in [
        (&mut sum.kernel_ns, account.kernel_ns),
        (&mut sum.sampled_ns, account.sampled_ns),
        (&mut sum.samples, account.samples),
        (&mut sum.carried_ns, account.carried_ns),
        (&mut sum.handed_on_ns, account.handed_on_ns),
        (&mut sum.before_timer_ns, account.before_timer_ns),
        (&mut sum.expired_ns, account.expired_ns),
        (&mut sum.biased, account.biased),
    ] {
        *sum = sum.saturating_add(more);
    }
    if let Some(more) = account.run_delay_ns {
        sum.run_delay_ns = Some(sum.run_delay_ns.unwrap_or(0).saturating_add(more));
    }
    add_lost(&mut sum.lost, &account.lost);
}
