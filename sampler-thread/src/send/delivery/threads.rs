//! Threads that wait for room: their entries and accounts.
//!
//! Problem: a program that starts ten million short threads while the collector is away must not cost an entry, an
//! account and a row for each of them.
//! Approach: from [`MAX_WAITING`] entries on, the threads with the least CPU time are folded until half as many wait:
//! platform threads that ended into one entry for each kind of thread, named [`ENDED`]; virtual threads into the thread
//! that carried them, which has their account anyway.
//! Invariants: a platform thread is folded whole, with its account and all its rows, or not at all, so each account
//! agrees with its samples and their sums stay what they were. What cannot be folded is what lives, or has been sent.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use proto::v1::{Thread, ThreadAccount, ThreadKind};
use rustc_hash::FxHasher;

use super::merge::Merged;
use crate::account::add_lost;

/// Entries that wait before threads are folded; with its account, each takes some 300 bytes.
pub const MAX_WAITING: usize = 16_384;

/// Virtual threads whose carriers are remembered, the newest ones; more than the agent itself remembers numbers of.
const MAX_CARRIERS: usize = 65_536;

/// Name of what stands for threads that began and ended while the collector was away.
pub const ENDED: &str = "[ended threads]";

/// Numbers from here down stand for ended threads, one for each kind; agents number threads from 1, and collectors use
/// numbers above.
const LAST_NUMBER: u32 = (1 << 31) - 1;

type Map<V> = HashMap<u32, V, BuildHasherDefault<FxHasher>>;

/// Which thread a virtual one ran on.
#[derive(Debug, Clone, Copy)]
struct Carrier {
    id: u32,
    /// Whether its rows go under the carrier's number, because its entry was given up.
    is_folded: bool,
}

/// Entries and accounts that wait.
#[derive(Debug)]
pub struct Threads {
    /// Entries.
    waiting: Map<Thread>,
    /// Accounts, each in its newest state.
    accounts: Map<ThreadAccount>,
    /// Platform threads whose entries left, until they have ended and nothing that waits names them.
    sent: Map<Thread>,
    /// Those of them that have ended.
    over: Vec<u32>,
    carriers: BTreeMap<u32, Carrier>,
    /// Sums of the accounts of folded threads since the session began, by the number that stands for them.
    ended: Map<ThreadAccount>,
    limit: usize,
    /// Entries beyond which threads are folded: the limit, more where too many could not be.
    fold_beyond: usize,
    /// Whether virtual threads that may live were folded, and have to be introduced again.
    is_lacking: bool,
}

impl Threads {
    /// Nothing waits; at most about `limit` entries will, beside those of threads that live.
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: Map::default(),
            accounts: Map::default(),
            sent: Map::default(),
            over: Vec::new(),
            carriers: BTreeMap::new(),
            ended: Map::default(),
            limit,
            fold_beyond: limit,
            is_lacking: false,
        }
    }

    /// Whether what comes next may go out at once.
    pub fn is_passed(&self) -> bool {
        self.waiting.is_empty() && !self.is_lacking
    }

    /// Whether virtual threads have to be introduced again.
    pub fn is_lacking(&self) -> bool {
        self.is_lacking
    }

    /// Every thread that is met from now on is introduced again.
    pub fn introduced_again(&mut self) {
        self.is_lacking = false;
        self.carriers.values_mut().for_each(|carrier| carrier.is_folded = false);
    }

    /// Accounts that wait.
    pub fn accounts(&self) -> usize {
        self.accounts.len()
    }

    /// Notes entries that are sent at once.
    pub fn pass(&mut self, threads: &[Thread]) {
        for thread in threads {
            self.note_carrier(thread);
            if thread.kind() != ThreadKind::Virtual {
                self.sent.insert(thread.id, thread.clone());
            }
        }
    }

    /// Keeps entries until there is room.
    pub fn introduce(&mut self, threads: Vec<Thread>) {
        for thread in threads {
            self.note_carrier(&thread);
            if self.number(thread.id) == thread.id {
                self.waiting.insert(thread.id, thread);
            }
        }
    }

    /// Keeps an account until there is room.
    pub fn keep_account(&mut self, account: ThreadAccount) {
        self.accounts.insert(account.thread, account);
    }

    /// Takes the entries, which are sent now.
    pub fn take_entries(&mut self) -> Vec<Thread> {
        let entries: Vec<Thread> = std::mem::take(&mut self.waiting).into_values().collect();
        self.pass(&entries);
        self.fold_beyond = self.limit;
        entries
    }

    /// Takes the accounts, which are sent now, after the entries.
    pub fn take_accounts(&mut self) -> Vec<ThreadAccount> {
        let accounts: Vec<ThreadAccount> = std::mem::take(&mut self.accounts).into_values().collect();
        self.over.extend(accounts.iter().filter(|account| account.ended).map(|account| account.thread));
        accounts
    }

    /// Forgets threads that have ended; only when nothing that waits names them.
    pub fn forget_ended(&mut self) {
        for thread in std::mem::take(&mut self.over) {
            self.sent.remove(&thread);
        }
    }

    /// The number under which samples of `thread` are kept.
    pub fn number(&self, thread: u32) -> u32 {
        match self.carriers.get(&thread) {
            Some(carrier) if carrier.is_folded => carrier.id,
            _ => thread,
        }
    }

    /// The same while the sampler still names what the collector has lost.
    pub fn number_after_loss(&self, thread: u32) -> u32 {
        let is_known = self.waiting.contains_key(&thread) || self.sent.contains_key(&thread);
        self.carriers.get(&thread).filter(|_| !is_known).map_or(thread, |carrier| carrier.id)
    }

    /// The collector lost every entry: those of platform threads that may still be named wait again, and rows of virtual
    /// threads whose entries do not wait go under their carriers.
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

    /// Folds threads if too many wait; their rows are among `rows`, if they have any.
    pub fn fold(&mut self, rows: &mut Merged) {
        if self.waiting.len() <= self.fold_beyond {
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
            let number = match thread.kind() {
                ThreadKind::Virtual => self.fold_virtual(&thread),
                kind => self.fold_ended(id, kind),
            };
            into.insert(id, number);
        }
        self.follow_carriers(&mut into);
        rows.fold_threads(&into);
        let left = self.waiting.len();
        self.fold_beyond = if left > self.limit / 2 { left.saturating_mul(2) } else { self.limit };
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
        self.is_lacking = true;
        thread.carrier
    }

    /// Adds the account of a platform thread to that of its kind.
    fn fold_ended(&mut self, id: u32, kind: ThreadKind) -> u32 {
        let number = LAST_NUMBER - kind as u32;
        let sum = self
            .ended
            .entry(number)
            .or_insert_with(|| ThreadAccount { thread: number, ..ThreadAccount::default() });
        if let Some(account) = self.accounts.remove(&id) {
            add(sum, &account);
        }
        self.accounts.insert(number, sum.clone());
        if !self.sent.contains_key(&number) {
            let name = ENDED.to_owned();
            self.waiting.insert(number, Thread { id: number, name, kind: kind.into(), ..Thread::default() });
        }
        number
    }

    /// What ran on a folded thread goes where that went, its entry included: nothing may name a thread without one.
    fn follow_carriers(&mut self, into: &mut Map<u32>) {
        let carried = self.waiting.values().filter(|thread| into.contains_key(&thread.carrier));
        let carried: Vec<(u32, u32)> = carried.map(|thread| (thread.id, thread.carrier)).collect();
        for (id, carrier) in carried {
            self.waiting.remove(&id);
            into.insert(id, carrier);
        }
        // A thread is carried by one of the platform's, so one step leads to what stands for both.
        let steps: Vec<(u32, u32)> =
            into.iter().filter_map(|(&id, carrier)| Some((id, *into.get(carrier)?))).collect();
        into.extend(steps);
    }

    fn note_carrier(&mut self, thread: &Thread) {
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

    /// Entries that wait.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.waiting.len()
    }
}

/// Adds an account to a sum. The sum never ends: collectors take an account that ended off their list.
fn add(sum: &mut ThreadAccount, account: &ThreadAccount) {
    for (sum, more) in [
        (&mut sum.kernel_ns, account.kernel_ns),
        (&mut sum.sampled_ns, account.sampled_ns),
        (&mut sum.samples, account.samples),
        (&mut sum.carried_ns, account.carried_ns),
        (&mut sum.handed_on_ns, account.handed_on_ns),
        (&mut sum.before_timer_ns, account.before_timer_ns),
        (&mut sum.expired_ns, account.expired_ns),
    ] {
        *sum = sum.saturating_add(more);
    }
    add_lost(&mut sum.lost, &account.lost);
}
