//! Random sessions with a collector that is slow, unreachable, or loses its memory.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use proto::rows::rows;
use proto::v1::{Lost, Thread, ThreadAccount, ThreadKind};

use super::*;
use crate::send::batch::{Batch, Sample};

/// Limit of threads in the backlog.
const LIMIT: usize = 8;
/// Messages that fill the window.
const WINDOW: usize = 4;

#[derive(Debug, Clone, Copy)]
enum Step {
    Start(u8),
    /// Each live thread is sampled, with one of this number of stacks.
    Run(u8),
    /// This number of virtual threads is sampled on one of the live threads.
    Carry(u8, u8),
    End(u8),
    Flush,
    Statistics,
    /// The collector receives and acknowledges the messages in the window.
    Receive,
    Disconnect,
    Connect {
        loses_memory: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u8..12).prop_map(Step::Start),
        6 => (1_u8..12).prop_map(Step::Run),
        3 => (1_u8..12, any::<u8>()).prop_map(|(count, on)| Step::Carry(count, on)),
        4 => (1_u8..12).prop_map(Step::End),
        5 => Just(Step::Flush),
        4 => Just(Step::Statistics),
        2 => Just(Step::Receive),
        2 => Just(Step::Disconnect),
        2 => Just(Step::Connect { loses_memory: false }),
        1 => Just(Step::Connect { loses_memory: true }),
    ]
}

/// One platform thread of the program.
struct Live {
    account: ThreadAccount,
    is_introduced: bool,
}

/// Agent, window and collector.
struct World {
    backlog: Backlog,
    live: Vec<Live>,
    ended: Vec<ThreadAccount>,
    /// Node ids of the sent stacks, by content.
    interned: HashMap<u8, u32>,
    next_node: u32,
    next_thread: u32,
    /// Virtual threads: id, carrier, whether the entry was sent.
    carried: Vec<(u32, u32, bool)>,
    dictionary: Dictionary,
    batch: Batch,
    time_ns: u64,
    produced_ns: u64,
    accounts: HashMap<u32, ThreadAccount>,
    /// Maximum number of threads that were live or had ended since the last statistics.
    most_live: usize,
    // The connection: messages, and whether they may refer to entries that the collector lost.
    window: Vec<(Body, bool)>,
    is_connected: bool,
    connections: u64,
    unnoticed_loss: Option<u64>,
    collector: Collector,
}

#[derive(Default)]
struct Collector {
    has_lost_memory: bool,
    nodes: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    sampled_ns: HashMap<u32, u64>,
    received_ns: u64,
    accounts: HashMap<u32, ThreadAccount>,
}

impl Collector {
    fn receive(&mut self, body: Body, is_excused: bool) {
        match body {
            Body::Dictionary(Dictionary { threads, entries }) => {
                let entries = entries.unwrap_or_default();
                for (node, up) in (entries.first_node..).zip(&entries.node_parent) {
                    let is_known = *up == 0 || self.nodes.contains(&(node - up));
                    assert!(is_known || is_excused, "node {node} is below an unknown one");
                    self.nodes.insert(node);
                }
                self.threads.extend(threads.into_iter().map(|thread| (thread.id, thread)));
            }
            Body::Samples(batch) => {
                for row in rows(&batch) {
                    let stack = row.stack;
                    assert!(self.nodes.contains(&stack) || is_excused, "stack {stack}");
                    let thread = self.threads.get(&row.thread);
                    assert!(thread.is_some() || is_excused, "thread {}", row.thread);
                    let carrier = thread.map(|thread| thread.carrier).filter(|&carrier| carrier != 0);
                    if let Some(carrier) = carrier {
                        assert!(self.threads.contains_key(&carrier) || is_excused, "carrier {carrier}");
                    }
                    *self.sampled_ns.entry(carrier.unwrap_or(row.thread)).or_default() += row.cpu_ns;
                    self.received_ns += row.cpu_ns;
                }
            }
            Body::Statistics(statistics) => {
                self.accounts.extend(statistics.threads.into_iter().map(|account| (account.thread, account)));
            }
            other => panic!("{other:?}"),
        }
    }
}

impl World {
    fn new() -> Self {
        Self {
            backlog: Backlog::with_threads(LIMIT),
            live: Vec::new(),
            ended: Vec::new(),
            interned: HashMap::new(),
            next_node: 3,
            next_thread: 1,
            carried: Vec::new(),
            dictionary: Dictionary::default(),
            batch: Batch::default(),
            time_ns: 0,
            produced_ns: 0,
            accounts: HashMap::new(),
            most_live: 0,
            window: Vec::new(),
            is_connected: false,
            connections: 0,
            unnoticed_loss: None,
            collector: Collector::default(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Start(count) => (0..count).for_each(|_| self.start()),
            Step::Run(stacks) => {
                for at in 0..self.live.len() {
                    let thread = self.run(at);
                    self.sample(thread, (self.time_ns % u64::from(stacks)) as u8);
                }
            }
            Step::Carry(count, on) if !self.live.is_empty() => {
                let at = usize::from(on) % self.live.len();
                (0..count).for_each(|n| self.carry(at, n));
            }
            Step::Carry(..) => {}
            Step::End(count) => {
                let kept = self.live.len().saturating_sub(count.into());
                for at in kept..self.live.len() {
                    self.introduce(at);
                }
                self.ended.extend(self.live.drain(kept..).map(|thread| ThreadAccount {
                    ended: true,
                    handed_on_ns: 1,
                    ..thread.account
                }));
            }
            Step::Flush => self.flush(),
            Step::Statistics => self.statistics(),
            Step::Receive => self.receive(),
            Step::Disconnect => self.is_connected = false,
            Step::Connect { loses_memory } => self.connect(loses_memory),
        }
        self.most_live = self.most_live.max(self.live.len() + self.ended.len());
    }

    fn start(&mut self) {
        let account = ThreadAccount { thread: self.next_thread, carried_ns: 2, ..ThreadAccount::default() };
        self.live.push(Live { account, is_introduced: false });
        self.next_thread += 1;
    }

    fn introduce(&mut self, at: usize) {
        let thread = &mut self.live[at];
        if !std::mem::replace(&mut thread.is_introduced, true) {
            let id = thread.account.thread;
            let kind = if id.is_multiple_of(3) { ThreadKind::Native } else { ThreadKind::Java };
            self.dictionary.threads.push(Thread { id, kind: kind.into(), ..Thread::default() });
        }
    }

    /// Adds an interval to a live thread; returns its id.
    fn run(&mut self, at: usize) -> u32 {
        self.introduce(at);
        let account = &mut self.live[at].account;
        account.kernel_ns += 13;
        account.sampled_ns += 10;
        account.samples += 1;
        let lost = Lost { cause: "queue_full".to_owned(), count: 1, ns: 3 };
        crate::account::add_lost(&mut account.lost, &[lost]);
        account.thread
    }

    fn carry(&mut self, at: usize, n: u8) {
        let carrier = self.run(at);
        let known = self.carried.iter().rev().take(3).position(|virtual_thread| virtual_thread.1 == carrier);
        let index = match known.filter(|_| n.is_multiple_of(2)) {
            Some(back) => self.carried.len() - 1 - back,
            None => {
                self.carried.push((self.next_thread, carrier, false));
                self.next_thread += 1;
                self.carried.len() - 1
            }
        };
        let (id, carrier, is_sent) = &mut self.carried[index];
        if !std::mem::replace(is_sent, true) {
            let kind = ThreadKind::Virtual.into();
            self.dictionary.threads.push(Thread { id: *id, kind, carrier: *carrier, ..Thread::default() });
        }
        let id = *id;
        self.sample(id, n);
    }

    /// Adds a sample. The parent of each stack is the one whose content is one less.
    fn sample(&mut self, thread: u32, stack: u8) {
        let mut parent = 0;
        for content in 0..=stack {
            parent = match self.interned.get(&content) {
                Some(&node) => node,
                None => {
                    let node = self.next_node;
                    self.next_node += 1;
                    let entries = self.dictionary.entries.get_or_insert_default();
                    if entries.node_frame.is_empty() {
                        entries.first_node = node;
                    }
                    entries.node_parent.push(if parent == 0 { 0 } else { node - parent });
                    entries.node_frame.push(1);
                    self.interned.insert(content, node);
                    node
                }
            };
        }
        self.time_ns += 400_000_000;
        self.produced_ns += 10;
        let time_ns = self.time_ns;
        self.batch.push(Sample { time_ns, thread, stack: parent.into(), cpu_ns: 10, flags: 0, count: 1 });
    }

    fn has_space(&self) -> bool {
        self.window.len() < WINDOW
    }

    fn check_for_loss(&mut self) {
        if let Some(connection) = self.unnoticed_loss.take() {
            self.backlog.collector_forgot(connection);
        }
    }

    fn release(&mut self, force: bool) {
        self.check_for_loss();
        if force || self.has_space() {
            let Self { backlog, window, .. } = self;
            backlog
                .release(force, &mut |body| {
                    window.push((body, false));
                    Ok(window.len() < WINDOW)
                })
                .expect("appended");
        }
    }

    fn flush(&mut self) {
        if self.dictionary != Dictionary::default() {
            let dictionary = std::mem::take(&mut self.dictionary);
            self.release(false);
            let passed = self.backlog.dictionary(&dictionary, self.has_space());
            self.window.extend(passed.map(|dictionary| (Body::Dictionary(dictionary), false)));
        }
        if let Some(batch) = self.batch.take() {
            self.release(false);
            if self.has_space() && self.backlog.samples_may_bypass() {
                self.window.push((Body::Samples(batch), false));
            } else {
                self.backlog.samples(&batch);
            }
        }
        self.check_for_loss();
        let absent = (!self.is_connected && self.window.len() >= WINDOW / 2).then_some(self.connections);
        if self.backlog.take_resend_request(self.has_space(), absent) {
            self.interned.clear();
            self.carried.iter_mut().for_each(|(_, _, is_sent)| *is_sent = false);
            self.live.iter_mut().for_each(|thread| thread.is_introduced = false);
        }
    }

    fn statistics(&mut self) {
        (0..self.live.len()).for_each(|at| self.introduce(at));
        self.flush();
        let mut threads = std::mem::take(&mut self.ended);
        threads.extend(self.live.iter().map(|thread| thread.account.clone()));
        self.accounts.extend(threads.iter().map(|account| (account.thread, account.clone())));
        // The ids of virtual threads on ended carriers are not used any more.
        let live: HashSet<u32> = self.live.iter().map(|thread| thread.account.thread).collect();
        self.carried.retain(|(_, carrier, _)| live.contains(carrier));
        self.release(false);
        self.backlog.statistics(&Statistics { threads, ..Statistics::default() });
        let entries = self.backlog.threads.entries();
        // Live threads, those that were live when the connection was lost, and as many again before the next fold.
        let bound = 4 * (LIMIT + self.most_live);
        assert!(
            entries <= bound,
            "{entries} entries in the backlog, with {} threads at most",
            self.most_live
        );
        if self.has_space() {
            self.release_statistics();
        }
    }

    fn release_statistics(&mut self) {
        let Self { backlog, window, .. } = self;
        let mut send = |body| {
            window.push((body, false));
            Ok(true)
        };
        backlog.release_statistics(None, &mut send).expect("appended");
    }

    fn receive(&mut self) {
        if self.is_connected {
            for (body, is_excused) in self.window.drain(..) {
                self.collector.receive(body, is_excused);
            }
        }
    }

    fn connect(&mut self, loses_memory: bool) {
        self.is_connected = true;
        self.connections += 1;
        if loses_memory && self.connections > 1 {
            self.unnoticed_loss = Some(self.connections);
            self.collector.has_lost_memory = true;
            self.collector.nodes.clear();
            self.collector.threads.clear();
            // The messages in the window are sent unchanged.
            self.window.iter_mut().for_each(|(_, is_excused)| *is_excused = true);
        }
    }

    fn end(&mut self) {
        self.connect(false);
        self.statistics();
        self.receive();
        self.release(true);
        self.release_statistics();
        self.receive();
    }

    /// Asserts that all CPU time has arrived, and that each thread's account equals its samples unless the collector
    /// lost its memory.
    fn check(&self) {
        let collector = &self.collector;
        assert_eq!(collector.received_ns, self.produced_ns);
        if collector.has_lost_memory {
            return;
        }
        for (thread, account) in &collector.accounts {
            let sampled_ns = collector.sampled_ns.get(thread).copied().unwrap_or(0);
            assert_eq!(sampled_ns, account.sampled_ns, "thread {thread}");
            assert!(collector.threads.contains_key(thread), "thread {thread} has no entry");
        }
        let sums = |accounts: &HashMap<u32, ThreadAccount>| {
            accounts.values().fold([0; 7], |sum, account| {
                let (count, ns) = account.lost.first().map_or((0, 0), |lost| (lost.count, lost.ns));
                assert!(account.lost.len() <= 1, "one entry for each cause: {:?}", account.lost);
                let ThreadAccount { kernel_ns, sampled_ns, samples, carried_ns, handed_on_ns, .. } = *account;
                let more = [kernel_ns, sampled_ns, samples, carried_ns, handed_on_ns, count, ns];
                std::array::from_fn(|at| sum[at] + more[at])
            })
        };
        assert_eq!(sums(&collector.accounts), sums(&self.accounts));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn in_random_sessions_all_cpu_time_arrives_and_the_backlog_is_bounded(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.end();
        world.check();
    }
}

/// Runs a session: the window fills, `steps` fill the backlog, then the collector loses its memory.
fn session_with_memory_loss(steps: &[Step]) -> World {
    let mut world = World::new();
    world.step(Step::Connect { loses_memory: false });
    for step in [Step::Start(2), Step::Run(1), Step::Statistics, Step::Receive, Step::Disconnect] {
        world.step(step);
    }
    steps.iter().for_each(|&step| world.step(step));
    world.step(Step::Connect { loses_memory: true });
    world.end();
    world.check();
    world
}

#[test]
fn rows_of_a_long_absence_keep_their_stacks_when_the_collector_lost_its_memory() {
    let absence = [[Step::Run(1), Step::Statistics]; 20].concat();
    let world = session_with_memory_loss(&absence);
    // Two threads, twenty rounds: the first two rounds are in the window, the others in the backlog.
    assert_eq!(world.backlog.rows().unnamed_ns(), 0);
    assert!(world.backlog.rows().merged() > 20, "{}", world.backlog.rows().merged());
}

#[test]
fn rows_whose_stacks_were_lost_keep_their_cpu_time() {
    let mut world = World::new();
    world.step(Step::Connect { loses_memory: false });
    for step in [Step::Start(2), Step::Run(1), Step::Statistics, Step::Receive] {
        world.step(step);
    }
    // The collector is slow but connected, so no entry is sent again.
    [[Step::Run(1), Step::Statistics]; 20].concat().into_iter().for_each(|step| world.step(step));
    assert_eq!(world.backlog.rows().unnamed_ns(), 0);
    world.step(Step::Disconnect);
    world.step(Step::Connect { loses_memory: true });
    world.end();
    world.check();
    assert!(world.backlog.rows().unnamed_ns() > 200, "{}", world.backlog.rows().unnamed_ns());
}

#[test]
fn a_virtual_thread_whose_entry_was_lost_counts_for_its_carrier() {
    let mut world = World::new();
    world.step(Step::Connect { loses_memory: false });
    for step in [Step::Start(1), Step::Carry(1, 0), Step::Statistics, Step::Receive, Step::Carry(1, 0)] {
        world.step(step);
    }
    world.step(Step::Disconnect);
    // The sampler sends its pending samples before it detects the loss.
    world.step(Step::Connect { loses_memory: true });
    world.step(Step::Flush);
    world.end();
    world.check();
    assert_eq!(world.collector.threads.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn entries_of_folded_virtual_threads_are_sent_again() {
    let mut world = World::new();
    // Fills the window; then the first of many virtual threads uses little CPU time.
    [Step::Start(1), Step::Run(1), Step::Statistics, Step::Run(1), Step::Statistics]
        .into_iter()
        .for_each(|step| world.step(step));
    for _ in 0..10 {
        world.step(Step::Carry(11, 0));
        world.step(Step::Statistics);
    }
    world.carried.truncate(1);
    let first = world.carried[0].0;
    world.step(Step::Connect { loses_memory: false });
    for step in [Step::Receive, Step::Flush, Step::Receive, Step::Flush] {
        world.step(step);
    }
    assert!(!world.collector.threads.contains_key(&first), "it was folded");
    world.step(Step::Carry(1, 0));
    world.end();
    world.check();
    assert!(world.collector.threads.contains_key(&first));
}
