//! One session: a recording that is repeated, and its account.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use proto::rows::rows;
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Goodbye, Hello, SampleBatch, Statistics, ThreadAccount};
use sampler_thread::send::delivery::{DEFAULT_WINDOW, Delivery, Limits, Target};
use sampler_thread::send::sink::Sink;

use crate::names::Names;
use crate::support::replay::{NS, Replay, time_ns};

/// Longest silence of the collectors at the end.
const END_SILENCE: Duration = Duration::from_secs(60);

/// When the sessions begin, by both clocks.
pub struct Beginning {
    wall_clock_ns: u64,
    monotonic_ns: u64,
}

impl Beginning {
    /// Returns the beginning of sessions of this length that end at the present.
    pub fn of_times(seconds: u64) -> Beginning {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"));
        // A machine that started later than the sessions would need times before zero.
        let back_ns = (seconds * NS).min(monotonic.as_nanos() as u64);
        Beginning {
            wall_clock_ns: wall.as_nanos() as u64 - back_ns,
            monotonic_ns: monotonic.as_nanos() as u64 - back_ns,
        }
    }
}

/// Name and place of a session among the others.
pub struct Identity {
    pub session: u64,
    /// Number of the agent.
    pub number: u64,
    /// Number of services that the agents share.
    pub services: u64,
}

/// Sums of an agent, and counters of its delivery.
pub struct Account {
    pub session: u64,
    pub cpu_ns: u64,
    pub samples: u64,
    pub connections: u64,
    pub resent: u64,
    pub merged: u64,
}

/// A replayed agent.
pub struct Agent<'r> {
    replay: &'r Replay,
    delivery: Delivery,
    hello: Hello,
    /// Repetition of the recording, and the next message in it.
    repetition: u64,
    next: usize,
    names: Names,
    /// The thread that has the account of a virtual thread.
    carriers: HashMap<u32, u32>,
    accounts: BTreeMap<u32, ThreadAccount>,
    /// Threads whose accounts have changed since they were sent.
    changed: BTreeSet<u32>,
}

impl<'r> Agent<'r> {
    /// Introduces a session.
    pub fn start(
        replay: &'r Replay,
        target: Target,
        beginning: &Beginning,
        identity: &Identity,
    ) -> io::Result<Agent<'r>> {
        let Identity { session, number, services } = identity;
        let limits = Limits { window: DEFAULT_WINDOW, end_silence: END_SILENCE, abandon: None };
        let delivery = Delivery::new(target, String::new(), limits, Box::new(|_| {}))?;
        let hello = Hello {
            session_id: *session,
            pid: 1000 + *number as u32,
            host: format!("host-{}", number / 10),
            service: format!("shop/{}", number % services),
            labels: vec![format!("version=1.{}", number % 3), format!("zone=zone-{}", number % 2)],
            wall_clock_ns: beginning.wall_clock_ns,
            monotonic_ns: beginning.monotonic_ns,
            ..replay.hello().clone()
        };
        let dictionaries = replay.stream.iter().filter_map(|message| match &message.body {
            Some(Body::Dictionary(dictionary)) => Some(dictionary),
            _ => None,
        });
        let mut agent = Agent {
            replay,
            delivery,
            hello: hello.clone(),
            repetition: 0,
            next: 0,
            names: Names::new(dictionaries),
            carriers: HashMap::new(),
            accounts: BTreeMap::new(),
            changed: BTreeSet::new(),
        };
        agent.send(&Body::Hello(hello));
        Ok(agent)
    }

    fn send(&mut self, body: &Body) {
        self.delivery.send(body).expect("a message that can be framed");
    }

    /// Sends all messages up to this time since the beginning.
    pub fn send_until(&mut self, time: Duration) {
        while let Some(message) = self.replay.stream.get(self.next) {
            let mut message = message.clone();
            let began_ns = self.replay.hello().monotonic_ns;
            if let Some(at_ns) = time_ns(&mut message) {
                let since_ns = at_ns.saturating_sub(began_ns) + self.repetition * self.replay.length_ns;
                if u128::from(since_ns) > time.as_nanos() {
                    return;
                }
                *at_ns = self.hello.monotonic_ns + since_ns;
            }
            self.replayed(message);
            self.next += 1;
            if self.next == self.replay.stream.len() {
                (self.next, self.repetition) = (0, self.repetition + 1);
            }
        }
    }

    fn replayed(&mut self, message: AgentMessage) {
        match message.body {
            // An agent sends each name once, so the repetitions of a recording have no names.
            Some(Body::Dictionary(dictionary)) if self.repetition == 0 => {
                let carried = dictionary.threads.iter().filter(|thread| thread.carrier != 0);
                self.carriers.extend(carried.map(|thread| (thread.id, thread.carrier)));
                let dictionary = self.names.add(&dictionary);
                self.send(&Body::Dictionary(dictionary));
            }
            Some(Body::Samples(batch)) => self.samples(batch),
            Some(Body::Statistics(recorded)) => self.statistics(recorded),
            Some(heartbeat @ Body::Heartbeat(_)) => self.send(&heartbeat),
            _ => {}
        }
        if self.delivery.take_resend_request() {
            for dictionary in self.names.send_again() {
                self.send(&Body::Dictionary(dictionary));
            }
        }
    }

    fn samples(&mut self, mut batch: SampleBatch) {
        for row in rows(&batch) {
            let thread = *self.carriers.get(&row.thread).unwrap_or(&row.thread);
            let account = self.accounts.entry(thread).or_default();
            account.thread = thread;
            account.kernel_ns += row.cpu_ns;
            account.sampled_ns += row.cpu_ns;
            account.samples += row.count;
            self.changed.insert(thread);
        }
        batch.node.iter_mut().for_each(|node| *node = self.names.node(*node));
        self.send(&Body::Samples(batch));
    }

    /// Sends the accounts of what was sent, with the other figures of the recording.
    fn statistics(&mut self, recorded: Statistics) {
        let threads = std::mem::take(&mut self.changed).into_iter();
        let (cpu_ns, samples) = self.sums();
        let statistics = Statistics {
            threads: threads.filter_map(|thread| self.accounts.get(&thread).cloned()).collect(),
            requests: samples,
            resolved: samples,
            samples,
            failed: Vec::new(),
            lost: Vec::new(),
            biased: None,
            process_cpu_ns: cpu_ns,
            kernel_ns: cpu_ns,
            sampled_ns: cpu_ns,
            before_timer_ns: 0,
            ..recorded
        };
        self.send(&Body::Statistics(statistics));
    }

    /// Returns the CPU time and the number of samples that were sent.
    fn sums(&self) -> (u64, u64) {
        let accounts = self.accounts.values();
        accounts.fold((0, 0), |(cpu_ns, samples), account| {
            (cpu_ns + account.sampled_ns, samples + account.samples)
        })
    }

    /// Sends the last accounts and the end of the session, this time after its beginning.
    pub fn end(&mut self, time: Duration) {
        let recorded = self.replay.stream.iter().rev().find_map(|message| match &message.body {
            Some(Body::Statistics(statistics)) => Some(statistics.clone()),
            _ => None,
        });
        let time_ns = self.hello.monotonic_ns + time.as_nanos() as u64;
        self.statistics(Statistics { time_ns, ..recorded.unwrap_or_default() });
        self.send(&Body::Goodbye(Goodbye { reason: "vm_death".into() }));
    }

    /// Waits until everything is acknowledged; returns whether it was.
    pub fn finish(&mut self) -> bool {
        self.delivery
            .finish()
            .inspect_err(|error| eprintln!("{:016x}: {error}", self.hello.session_id))
            .is_ok()
    }

    /// Returns what was sent.
    pub fn account(&self) -> Account {
        let (cpu_ns, samples) = self.sums();
        let delivery = self.delivery.delivery().unwrap_or_default();
        Account {
            session: self.hello.session_id,
            cpu_ns,
            samples,
            connections: delivery.connections,
            resent: delivery.resent,
            merged: delivery.merged_samples,
        }
    }
}
