//! Delivery to a collector that is slow, unreachable or restarted: no CPU time is lost and none is counted twice.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use proto::framing::{FrameDecoder, encode_frame};
use proto::rows::rows;
use proto::v1::{
    Acknowledgement, AgentMessage, CollectorMessage, Dictionary, Entries, Goodbye, Hello, Reject,
    SampleBatch, Statistics, Thread, ThreadAccount, ThreadKind, agent_message::Body, collector_message,
};
use sampler_thread::send::batch::{Batch, Sample};
use sampler_thread::send::delivery::{Delivery, Limits, Target};
use sampler_thread::send::sink::{Sink, SinkError};
use tempfile::TempDir;

/// A collector under the test's control; it keeps received messages across connections.
struct Collector {
    _directory: TempDir,
    path: PathBuf,
    listener: UnixListener,
    /// Messages by sequence number, so that a message received twice counts once.
    received: HashMap<u64, Body>,
}

/// One accepted connection.
struct Peer {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl Collector {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bind");
        Self { _directory: directory, path, listener, received: HashMap::new() }
    }

    /// Accepts the next connection and reads its `Hello`.
    fn accept_hello(&mut self) -> (Peer, Hello) {
        let (stream, _) = self.listener.accept().expect("accept");
        let mut peer = Peer { stream, decoder: FrameDecoder::new() };
        let first = peer.next();
        assert_eq!(first.sequence, 1);
        let Some(Body::Hello(hello)) = first.body else { panic!("{first:?}") };
        (peer, hello)
    }

    /// Accepts the next connection and acknowledges everything up to `resume`.
    fn accept(&mut self, resume: u64) -> Peer {
        let (mut peer, _) = self.accept_hello();
        peer.acknowledge(resume);
        peer
    }

    /// Receives messages until one matches; returns its sequence number.
    fn receive_until(&mut self, peer: &mut Peer, acknowledge: bool, matches: impl Fn(&Body) -> bool) -> u64 {
        loop {
            let message = peer.next();
            let body = message.body.expect("a body");
            let found = matches(&body);
            self.received.insert(message.sequence, body);
            if acknowledge {
                peer.acknowledge(message.sequence);
            }
            if found {
                return message.sequence;
            }
        }
    }

    /// Returns the received CPU time and number of samples; each message counts once.
    fn sums(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for body in self.received.values() {
            if let Body::Samples(batch) = body {
                for row in rows(batch) {
                    sums.0 += row.cpu_ns;
                    sums.1 += row.count;
                }
            }
        }
        sums
    }
}

impl Peer {
    fn next(&mut self) -> AgentMessage {
        loop {
            if let Some(message) = self.decoder.next().expect("well-formed") {
                return message;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).expect("readable");
            assert!(length > 0, "the agent closed the connection");
            self.decoder.push(&buffer[..length]);
        }
    }

    fn answer(&mut self, body: collector_message::Body) {
        let mut bytes = Vec::new();
        encode_frame(&CollectorMessage { body: Some(body) }, &mut bytes).expect("small");
        self.stream.write_all(&bytes).expect("the agent reads");
    }

    fn acknowledge(&mut self, sequence: u64) {
        self.answer(collector_message::Body::Acknowledgement(Acknowledgement { sequence }));
    }
}

/// Longest silence of a collector at the end; beyond any delay of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a delivery whose session has begun.
fn delivery(path: &Path, window: u64) -> Delivery {
    let target = Target::Unix(path.to_owned());
    let limits = Limits { window, end_silence: PATIENCE, abandon: None };
    let mut delivery = Delivery::new(target, "secret".to_owned(), limits, Box::new(|_| {})).expect("pipe");
    delivery.send(&Body::Hello(Hello::default())).expect("begun");
    delivery
}

fn samples(count: u64) -> Body {
    let mut batch = Batch::default();
    for n in 0..count {
        batch.push(Sample { time_ns: n, thread: 1, stack: 1 + n % 5, cpu_ns: 10, flags: 0, count: 1 });
    }
    Body::Samples(batch.take().expect("filled"))
}

fn goodbye() -> Body {
    Body::Goodbye(Goodbye { reason: "test".to_owned() })
}

fn is_goodbye(body: &Body) -> bool {
    matches!(body, Body::Goodbye(_))
}

fn is_samples(body: &Body) -> bool {
    matches!(body, Body::Samples(SampleBatch { .. }))
}

#[test]
fn after_a_lost_connection_each_sample_arrives_once() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1 << 20);
    let mut peer = collector.accept(1);
    delivery.send(&samples(10)).expect("sent");
    delivery.send(&samples(20)).expect("sent");
    // The collector has recorded both messages, but the connection is lost before the acknowledgement.
    let first = collector.receive_until(&mut peer, false, is_samples);
    collector.receive_until(&mut peer, false, is_samples);
    drop(peer);
    let mut peer = collector.accept(first);
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    assert_eq!(collector.sums(), (300, 30));
    let facts = delivery.delivery().expect("facts");
    assert_eq!((facts.connections, facts.resent, facts.merged_samples), (2, 1, 0));
}

#[test]
fn a_full_window_merges_and_loses_no_time() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 2000);
    // The connection is not accepted yet: the window fills, and later messages are merged or kept in the backlog.
    for round in 0..200 {
        let first_node = 3 + 10 * round as u32;
        let entries =
            Entries { first_node, node_parent: vec![1; 10], node_frame: vec![7; 10], ..Entries::default() };
        let dictionary = Dictionary { entries: Some(entries), ..Dictionary::default() };
        delivery.send(&Body::Dictionary(dictionary)).expect("kept");
        delivery.send(&samples(50)).expect("kept");
        let account =
            ThreadAccount { thread: round as u32 + 1, kernel_ns: round, ..ThreadAccount::default() };
        let statistics = Statistics { threads: vec![account], samples: round, ..Statistics::default() };
        delivery.send(&Body::Statistics(statistics)).expect("kept");
    }
    let facts = delivery.delivery().expect("facts");
    assert!(facts.merged_samples > 5000, "{facts:?}");
    assert!(facts.window_bytes < 10_000, "{facts:?}");
    let mut peer = collector.accept(1);
    let window_bytes_before = facts.window_bytes;
    collector.receive_until(&mut peer, true, |body| matches!(body, Body::Statistics(_)));
    while delivery.delivery().expect("facts").window_bytes == window_bytes_before {
        std::thread::yield_now();
    }
    let ended = std::thread::spawn(move || {
        delivery.send(&goodbye()).expect("sent");
        delivery.finish()
    });
    collector.receive_until(&mut peer, true, is_goodbye);
    ended.join().expect("no panic").expect("delivered");
    assert_eq!(collector.sums(), (200 * 500, 200 * 50));
    // The account of every thread arrives, and the last statistics count the merged samples.
    let mut accounts: Vec<u32> = Vec::new();
    let mut merged = 0;
    for body in collector.received.values() {
        if let Body::Statistics(statistics) = body {
            accounts.extend(statistics.threads.iter().map(|account| account.thread));
            merged = merged.max(statistics.delivery.expect("delivery").merged_samples);
        }
    }
    accounts.sort_unstable();
    assert!(accounts.iter().copied().eq(1..=200), "{accounts:?}");
    assert!(merged > 5000, "{merged}");
    let nodes: usize = collector
        .received
        .values()
        .map(|body| match body {
            Body::Dictionary(sent) => {
                let entries = sent.entries.iter().filter(|entries| entries.first_node >= 3);
                entries.map(|entries| entries.node_frame.len()).sum()
            }
            _ => 0,
        })
        .sum();
    assert_eq!(nodes, 2000);
}

#[test]
fn accounts_in_the_backlog_arrive_with_the_next_statistics() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 100);
    let statistics = |threads: &[(u32, u64)]| {
        let account = |&(thread, kernel_ns)| ThreadAccount { thread, kernel_ns, ..ThreadAccount::default() };
        Body::Statistics(Statistics {
            threads: threads.iter().map(account).collect(),
            ..Statistics::default()
        })
    };
    delivery.send(&samples(100)).expect("kept");
    delivery.send(&statistics(&[(1, 10), (2, 20)])).expect("held");
    delivery.send(&statistics(&[(2, 25), (3, 30)])).expect("held");
    let mut peer = collector.accept(1);
    collector.receive_until(&mut peer, true, is_samples);
    while delivery.delivery().expect("facts").window_bytes > 0 {
        std::thread::yield_now();
    }
    delivery.send(&statistics(&[(1, 11)])).expect("sent");
    let last = collector.receive_until(&mut peer, true, |body| matches!(body, Body::Statistics(_)));
    let Some(Body::Statistics(sent)) = collector.received.get(&last) else { panic!("statistics") };
    let mut accounts: Vec<_> =
        sent.threads.iter().map(|account| (account.thread, account.kernel_ns)).collect();
    accounts.sort_unstable();
    assert_eq!(accounts, [(1, 11), (2, 25), (3, 30)]);
}

#[test]
fn a_collector_that_lost_its_memory_gets_the_dictionary_again() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1 << 20);
    let mut peer = collector.accept(1);
    delivery.send(&samples(10)).expect("sent");
    collector.receive_until(&mut peer, true, is_samples);
    while delivery.delivery().expect("facts").window_bytes > 0 {
        std::thread::yield_now();
    }
    assert!(!delivery.take_resend_request());
    drop(peer);
    let _peer = collector.accept(1);
    while delivery.delivery().expect("facts").connections < 2 {
        std::thread::yield_now();
    }
    assert!(delivery.take_resend_request());
    assert!(!delivery.take_resend_request());
}

#[test]
fn hello_contains_the_token_and_delivery_continues_after_a_rejection() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1 << 20);
    let (mut peer, hello) = collector.accept_hello();
    assert_eq!(hello.token, "secret");
    let (mut other_collector, secret) = (Collector::new(), hello.secret);
    let other_session = self::delivery(&other_collector.path, 1 << 20);
    let (_peer, other) = other_collector.accept_hello();
    assert!(secret.len() == 16 && other.secret.len() == 16 && other.secret != secret, "one for each session");
    drop((other_session, _peer, other_collector));
    peer.answer(collector_message::Body::Reject(Reject { reason: "the collector is full".to_owned() }));
    drop(peer);
    delivery.send(&samples(3)).expect("kept");
    let (mut peer, hello) = collector.accept_hello();
    assert_eq!(hello.secret, secret, "the session goes on");
    peer.acknowledge(1);
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    assert_eq!(collector.sums(), (30, 3));
}

#[test]
fn unacknowledged_messages_of_a_lost_collector_are_an_error() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1 << 20);
    let mut peer = collector.accept(1);
    delivery.send(&samples(3)).expect("sent");
    collector.receive_until(&mut peer, false, is_samples);
    drop((peer, collector));
    delivery.send(&goodbye()).expect("kept");
    let error = delivery.finish().expect_err("nobody is there");
    assert!(matches!(&error, SinkError::Undelivered(what) if what.contains("not acknowledged")), "{error}");
}

#[test]
fn a_collector_that_never_existed_is_no_error() {
    let directory = tempfile::tempdir().expect("tempdir");
    let mut delivery = delivery(&directory.path().join("nobody"), 1 << 20);
    delivery.send(&goodbye()).expect("kept");
    delivery.finish().expect("no error");
    assert_eq!(delivery.delivery().expect("facts").connections, 0);
}

#[test]
fn an_unencrypted_network_is_detected() {
    let tcp = |address: &str, insecure| Target::Tcp { address: address.to_owned(), insecure };
    // 192.0.2.1 is reserved for documentation (RFC 5737).
    assert!(tcp("192.0.2.1:4170", false).is_unencrypted_network());
    assert!(!tcp("192.0.2.1:4170", true).is_unencrypted_network());
    assert!(!tcp("127.0.0.1:4170", false).is_unencrypted_network());
}

/// Returns an entry of `node` below `parent`, and a string of `bytes` bytes.
fn entry(node: u32, parent: u32, bytes: usize) -> Body {
    let entries = Entries {
        first_string: node,
        string: vec!["s".repeat(bytes)],
        first_node: node,
        node_parent: vec![parent],
        node_frame: vec![1],
        ..Entries::default()
    };
    Body::Dictionary(Dictionary { entries: Some(entries), ..Dictionary::default() })
}

fn sample_of(stack: u64) -> Body {
    let mut batch = Batch::default();
    batch.push(Sample { time_ns: 1, thread: 1, stack, cpu_ns: 10, flags: 0, count: 1 });
    Body::Samples(batch.take().expect("filled"))
}

/// Sends more entries than the backlog takes, and a sample of each: ten nodes of a megabyte from `first` on, each the
/// child of the one before.
fn overflow(delivery: &mut Delivery, first: u32) {
    for node in first..first + 10 {
        delivery.send(&entry(node, if node == first { 0 } else { node - 1 }, 1 << 20)).expect("held");
        delivery.send(&sample_of(node.into())).expect("held");
    }
}

fn wait_until_empty(delivery: &Delivery) {
    while delivery.delivery().expect("facts").window_bytes > 0 {
        std::thread::yield_now();
    }
}

/// Asserts that each node is sent before it is referred to; returns the CPU time of the stack `[merged]`.
fn merged_ns_of_known_nodes(received: &HashMap<u64, Body>) -> u64 {
    let mut known = std::collections::HashSet::from([0]);
    let mut merged_ns = 0;
    let mut sequences: Vec<&u64> = received.keys().collect();
    sequences.sort_unstable();
    for sequence in sequences {
        match &received[sequence] {
            Body::Dictionary(Dictionary { entries: Some(entries), .. }) => {
                for (node, parent) in (entries.first_node..).zip(&entries.node_parent) {
                    assert!(known.contains(&u64::from(*parent)), "message {sequence}: parent {parent}");
                    known.insert(node.into());
                }
            }
            Body::Samples(batch) => {
                for row in rows(batch) {
                    assert!(known.contains(&u64::from(row.stack)), "message {sequence}: stack {}", row.stack);
                    merged_ns += if row.stack == 2 { row.cpu_ns } else { 0 };
                }
            }
            _ => {}
        }
    }
    merged_ns
}

#[test]
fn no_message_refers_to_a_dropped_entry() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 4096);
    // The first entry fills the window.
    delivery.send(&entry(3, 0, 8192)).expect("sent");
    overflow(&mut delivery, 4);
    let mut peer = collector.accept(1);
    collector.receive_until(
        &mut peer,
        true,
        |body| matches!(body, Body::Dictionary(sent) if sent.encoded_len() > 8192),
    );
    wait_until_empty(&delivery);
    // There is space: the backlog is sent and fills the window again, so entries need not be sent again yet.
    delivery.send(&sample_of(13)).expect("sent");
    assert!(!delivery.take_resend_request());
    collector.receive_until(&mut peer, true, is_samples);
    wait_until_empty(&delivery);
    // The rest of that flush and the next one still refer to dropped entries.
    delivery.send(&entry(14, 13, 1)).expect("sent");
    delivery.send(&sample_of(13)).expect("sent");
    delivery.send(&sample_of(14)).expect("sent");
    assert!(delivery.take_resend_request());
    delivery.send(&entry(15, 0, 1)).expect("sent");
    delivery.send(&sample_of(15)).expect("sent");
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    assert_eq!(collector.sums(), (140, 14));
    let merged_ns = merged_ns_of_known_nodes(&collector.received);
    assert!((30..140).contains(&merged_ns), "{merged_ns}");
}

#[test]
fn a_collector_that_lost_its_memory_gets_the_stack_merged_again() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 4096);
    let mut peer = collector.accept(1);
    delivery.send(&entry(3, 0, 1)).expect("sent");
    collector.receive_until(
        &mut peer,
        true,
        |body| matches!(body, Body::Dictionary(sent) if sent.encoded_len() > 0),
    );
    collector.receive_until(&mut peer, true, |_| true);
    wait_until_empty(&delivery);
    delivery.send(&entry(4, 0, 8192)).expect("sent");
    overflow(&mut delivery, 5);
    drop(peer);
    collector.received.clear();
    let mut peer = collector.accept(1);
    while delivery.delivery().expect("facts").connections < 2 {
        std::thread::yield_now();
    }
    // It lost all entries while the backlog is full and the window has no space.
    assert!(delivery.take_resend_request());
    collector.receive_until(&mut peer, true, |body| matches!(body, Body::Dictionary(_)));
    wait_until_empty(&delivery);
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    assert_eq!(collector.sums(), (100, 10));
    assert!(merged_ns_of_known_nodes(&collector.received) > 0);
}

#[test]
fn rows_of_a_long_absence_keep_their_stacks_when_the_collector_lost_its_memory() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 4096);
    let mut peer = collector.accept(1);
    delivery.send(&entry(3, 0, 1)).expect("sent");
    delivery.send(&sample_of(3)).expect("sent");
    collector.receive_until(&mut peer, true, is_samples);
    wait_until_empty(&delivery);
    assert!(!delivery.take_resend_request(), "the collector is connected");
    drop(peer);
    delivery.send(&entry(4, 3, 3000)).expect("kept");
    // The window is half full and the connection is lost: entries are sent again at their next use.
    while !delivery.take_resend_request() {
        std::thread::yield_now();
    }
    assert!(!delivery.take_resend_request(), "once for each absence");
    delivery.send(&entry(5, 0, 3000)).expect("kept");
    for node in 6..20 {
        delivery.send(&entry(node, node - 1, 1)).expect("held");
        delivery.send(&sample_of(node.into())).expect("held");
    }
    collector.received.clear();
    let mut peer = collector.accept(1);
    while delivery.delivery().expect("facts").connections < 2 {
        std::thread::yield_now();
    }
    assert!(!delivery.take_resend_request(), "all entries were sent again");
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    assert_eq!(collector.sums(), (140, 14));
    // The entry that filled half of the window has a parent that was lost.
    collector.received.retain(|_, body| !matches!(body, Body::Dictionary(Dictionary { entries: Some(entries), .. }) if entries.first_node == 4));
    assert_eq!(merged_ns_of_known_nodes(&collector.received), 0);
}

fn thread(id: u32, kind: ThreadKind, carrier: u32) -> Thread {
    let name = "a thread with a name of some length".to_owned();
    Thread { id, name, kind: kind.into(), java_id: id.into(), carrier, ..Thread::default() }
}

fn sample_by(threads: impl IntoIterator<Item = u32>) -> Body {
    let mut batch = Batch::default();
    for thread in threads {
        batch.push(Sample { time_ns: 1, thread, stack: 2, cpu_ns: 10, flags: 0, count: 1 });
    }
    Body::Samples(batch.take().expect("filled"))
}

/// Returns the threads received, by id, and the CPU time of each.
fn threads_sent(collector: &Collector) -> (HashMap<u32, Thread>, HashMap<u32, u64>) {
    let (mut threads, mut cpu_ns) = (HashMap::new(), HashMap::new());
    for body in collector.received.values() {
        match body {
            Body::Dictionary(sent) => {
                threads.extend(sent.threads.iter().map(|thread| (thread.id, thread.clone())));
            }
            Body::Samples(batch) => {
                rows(batch).for_each(|row| *cpu_ns.entry(row.thread).or_default() += row.cpu_ns);
            }
            _ => {}
        }
    }
    (threads, cpu_ns)
}

/// Limit of threads in the backlog, live threads excluded.
const MAX_THREADS: usize = 16_384;

#[test]
fn virtual_threads_in_the_backlog_are_bounded() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1);
    // Accepted before the loop, which may take longer than the agent waits for the answer to its `Hello`. Without
    // acknowledgements the first message fills the window, and the rest stays in the backlog.
    let mut peer = collector.accept(1);
    // Two and a quarter hours with the most virtual threads per second that are sent, and a new carrier each second.
    let (seconds, a_second) = (8_000, 50);
    for second in 0..seconds {
        let carrier = 1 + second * (a_second + 1);
        let carried = carrier + 1..=carrier + a_second;
        let mut threads = vec![thread(carrier, ThreadKind::Java, 0)];
        threads.extend(carried.clone().map(|id| thread(id, ThreadKind::Virtual, carrier)));
        delivery.send(&Body::Dictionary(Dictionary { threads, ..Dictionary::default() })).expect("held");
        delivery.send(&sample_by(carried)).expect("held");
    }
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    let (threads, cpu_ns) = threads_sent(&collector);
    let sent = |kind: ThreadKind| threads.values().filter(|thread| thread.kind() == kind).count();
    assert_eq!(sent(ThreadKind::Java), seconds as usize);
    assert!((100..MAX_THREADS).contains(&sent(ThreadKind::Virtual)), "{}", sent(ThreadKind::Virtual));
    // The CPU time of threads without entry counts for their carrier.
    let mut by_carrier: HashMap<u32, u64> = HashMap::new();
    for (id, cpu_ns) in cpu_ns {
        let thread = threads.get(&id).unwrap_or_else(|| panic!("thread {id} has no entry"));
        *by_carrier.entry(if thread.carrier == 0 { id } else { thread.carrier }).or_default() += cpu_ns;
    }
    assert_eq!(by_carrier.len(), seconds as usize);
    assert!(by_carrier.values().all(|&cpu_ns| cpu_ns == 10 * u64::from(a_second)));
}

#[test]
fn short_threads_in_the_backlog_are_bounded() {
    let mut collector = Collector::new();
    let mut delivery = delivery(&collector.path, 1);
    // Accepted before the loop, which may take longer than the agent waits for the answer to its `Hello`. Without
    // acknowledgements the first message fills the window, and the rest stays in the backlog.
    let mut peer = collector.accept(1);
    let (seconds, a_second) = (2_000, 100);
    for second in 0..seconds {
        let ids = 1 + second * a_second..=(second + 1) * a_second;
        let kind = |id| if id % 10 == 0 { ThreadKind::Native } else { ThreadKind::Java };
        let threads = ids.clone().map(|id| thread(id, kind(id), 0)).collect();
        delivery.send(&Body::Dictionary(Dictionary { threads, ..Dictionary::default() })).expect("held");
        // The first thread uses a hundred times as much CPU time as the others.
        let busy = (second == 0).then_some(1);
        delivery.send(&sample_by(ids.clone().chain(busy.into_iter().cycle().take(99)))).expect("held");
        let account = |id| {
            let sampled_ns = if id == 1 { 1000 } else { 10 };
            let kernel_ns = sampled_ns + 1;
            ThreadAccount { thread: id, kernel_ns, sampled_ns, ended: true, ..ThreadAccount::default() }
        };
        let threads = ids.map(account).collect();
        delivery.send(&Body::Statistics(Statistics { threads, ..Statistics::default() })).expect("held");
    }
    delivery.send(&goodbye()).expect("sent");
    collector.receive_until(&mut peer, true, is_goodbye);
    delivery.finish().expect("delivered");
    let (threads, cpu_ns) = threads_sent(&collector);
    assert!(threads.len() <= MAX_THREADS + 2, "{}", threads.len());
    let ended: Vec<&Thread> = threads.values().filter(|thread| thread.name == "[ended threads]").collect();
    let mut kinds: Vec<ThreadKind> = ended.iter().map(|thread| thread.kind()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [ThreadKind::Java, ThreadKind::Native]);
    let accounts = collector.received.values().filter_map(|body| match body {
        Body::Statistics(statistics) => Some(&statistics.threads),
        _ => None,
    });
    let accounts: HashMap<u32, &ThreadAccount> =
        accounts.flatten().map(|account| (account.thread, account)).collect();
    assert_eq!(accounts.len(), threads.len());
    for (id, account) in &accounts {
        assert_eq!(cpu_ns.get(id), Some(&account.sampled_ns), "thread {id}");
        assert_eq!(account.ended, threads[id].name != "[ended threads]", "thread {id}");
    }
    let count = u64::from(seconds * a_second);
    let sum = |of: fn(&ThreadAccount) -> u64| accounts.values().map(|account| of(account)).sum::<u64>();
    assert_eq!(
        (sum(|account| account.sampled_ns), sum(|account| account.kernel_ns)),
        (count * 10 + 990, count * 11 + 990)
    );
    // The thread with the most CPU time keeps its name.
    assert_eq!(cpu_ns.get(&1), Some(&1000));
}
