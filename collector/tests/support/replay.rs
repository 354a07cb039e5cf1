//! A recording as what one process sends: it is repeated as if it went on.

use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Hello};

/// A second.
pub const NS: u64 = 1_000_000_000;

/// The messages of a recording.
pub struct Replay {
    pub stream: Vec<AgentMessage>,
    /// Time from one repetition to the next.
    pub length_ns: u64,
}

impl Replay {
    pub fn new(stream: Vec<AgentMessage>) -> Self {
        let times = || stream.iter().filter_map(|message| time_ns(&mut message.clone()).copied());
        let length_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0) + NS;
        Replay { stream, length_ns }
    }

    /// The introduction of the recorded process.
    pub fn hello(&self) -> &Hello {
        let Some(Body::Hello(hello)) = &self.stream[0].body else { panic!("hello comes first") };
        hello
    }
}

/// Returns the time of a message, on the clock of its session.
pub fn time_ns(message: &mut AgentMessage) -> Option<&mut u64> {
    match message.body.as_mut()? {
        Body::Samples(batch) => Some(&mut batch.first_time_ns),
        Body::Statistics(statistics) => Some(&mut statistics.time_ns),
        Body::Heartbeat(heartbeat) => Some(&mut heartbeat.time_ns),
        _ => None,
    }
}
