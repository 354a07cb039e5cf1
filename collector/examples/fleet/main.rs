//! Agents without JVMs: many sessions that replay recordings of real JVMs and send them as an agent does.
//!
//! ```sh
//! cargo run --release -p collector --example fleet -- 127.0.0.1:4170 200 60
//! ```
//!
//! Arguments: addresses of collectors, separated by commas, among which the agents are divided, or that of a balancer;
//! number of agents; seconds; and optionally the speed at which time passes (1) and the number of services (10).
//! Messages go through the agent's own code for delivery, so that they are kept, merged, sent again and renumbered as
//! in a JVM. A speed of 10 sends what JVMs send in ten times as long; the times of the samples end at the present.
//!
//! Prints JSON: CPU time and samples of each session as the agents account for them, and counters of delivery. Ends
//! with an error if a collector did not acknowledge everything.

#[path = "../../tests/support/recorded.rs"]
mod recorded;
#[path = "../../tests/support/mod.rs"]
mod support;

mod agent;
mod names;

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent::{Agent, Beginning};
use recorded::recorded;
use sampler_thread::send::delivery::Target;
use serde_json::json;
use support::replay::Replay;

/// Recordings that are replayed; the first agents have the first one, and so on in turns.
const RECORDINGS: [&str; 4] = ["h2-25", "planted-25", "virtual-25", "steady-25"];
/// Agents that one thread serves.
const AGENTS_A_THREAD: usize = 100;
/// Pause between two looks at what is due.
const STEP: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let addresses = arguments.next().ok_or("name the address of a collector")?;
    let targets: Vec<Target> = addresses.split(',').map(target).collect();
    let mut number = |name: &str, default: Option<u64>| match arguments.next() {
        Some(text) => text.parse().map_err(|_| format!("{name} '{text}' is not a number")),
        None => default.ok_or_else(|| format!("the {name} is missing")),
    };
    let agents = number("number of agents", None)?;
    let seconds = number("number of seconds", None)?;
    let speed = number("speed", Some(1))?;
    let services = number("number of services", Some(10))?;
    let replays = RECORDINGS.map(|name| Replay::new(recorded(name)));
    let first_session = RandomState::new().hash_one("sessions") << 16;
    let beginning = Beginning::of_times(seconds * speed);
    let mut all = Vec::new();
    for number in 0..agents {
        let replay = &replays[number as usize % replays.len()];
        let identity = agent::Identity { session: first_session + number, number, services };
        let target = targets[number as usize % targets.len()].clone();
        all.push(Agent::start(replay, target, &beginning, &identity)?);
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for group in all.chunks_mut(AGENTS_A_THREAD) {
            scope.spawn(|| serve(group, begin, Duration::from_secs(seconds), speed as u32));
        }
    });
    let mut sessions = BTreeMap::new();
    let (mut connections, mut resent, mut merged, mut undelivered) = (0, 0, 0, 0);
    for agent in &mut all {
        undelivered += u64::from(!agent.finish());
        let account = agent.account();
        sessions.insert(format!("{:016x}", account.session), json!([account.cpu_ns, account.samples]));
        connections += account.connections;
        resent += account.resent;
        merged += account.merged;
    }
    println!(
        "{}",
        json!({
            "sessions": sessions,
            "connections": connections,
            "resent_messages": resent,
            "merged_samples": merged,
            "undelivered_sessions": undelivered,
        })
    );
    if undelivered > 0 { Err("a collector did not acknowledge everything".into()) } else { Ok(()) }
}

fn target(address: &str) -> Target {
    match address.strip_prefix("unix:") {
        Some(path) => Target::Unix(PathBuf::from(path)),
        None => Target::Tcp { address: address.to_owned(), insecure: false },
    }
}

/// Sends what is due until the time is over, and then what ends a session.
fn serve(agents: &mut [Agent<'_>], begin: Instant, length: Duration, speed: u32) {
    loop {
        let passed = begin.elapsed().min(length);
        for agent in &mut *agents {
            agent.send_until(passed * speed);
        }
        if passed == length {
            break;
        }
        std::thread::park_timeout(STEP);
    }
    agents.iter_mut().for_each(|agent| agent.end(length * speed));
}
