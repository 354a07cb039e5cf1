//! Damage to messages: to their bytes, and to what they say.

use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Entries, SampleBatch};

/// Numbers without a pattern, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// A number of any magnitude, not only a large one.
    fn any(&mut self) -> u64 {
        let bits = self.below(64);
        self.next() >> bits
    }
}

/// Damages one framed message; true if the connection is likely to survive it.
pub fn bytes(framed: &mut Vec<u8>, random: &mut Random) -> bool {
    let length = framed.len();
    match random.below(16) {
        // Inside the protobuf message: often still valid, with other values.
        0..=9 => {
            for _ in 0..=random.below(3) {
                let at = 5 + random.below(length - 5);
                framed[at] ^= 1 << random.below(7);
            }
            true
        }
        10 => {
            let at = 5 + random.below(length - 5);
            framed[at..].fill(0xff);
            true
        }
        // The length is too large or too small.
        11 => {
            framed[1 + random.below(4)] ^= 1 << random.below(8);
            false
        }
        12 => {
            framed.truncate(random.below(length));
            false
        }
        13 => {
            let garbage = random.below(200);
            framed.extend(std::iter::repeat_with(|| random.next() as u8).take(garbage));
            false
        }
        // A list as long as the message may be, of empty entries: the largest growth in decoding.
        14 if random.below(2000) == 0 => {
            let mut body = vec![0x1a, 0, 0, 0, 0];
            let entries = 1 << 20;
            body[1..].copy_from_slice(&[0x80 | (entries * 2) as u8 & 0x7f, 0x80, 0x80, 0x01]);
            body.extend([0x0a, 0x00].repeat(entries));
            framed.truncate(1);
            framed.extend((body.len() as u32).to_be_bytes());
            framed.extend(body);
            false
        }
        _ => {
            framed[0] = random.next() as u8;
            false
        }
    }
}

/// Makes a message say something else, in a form that can be decoded.
pub fn meaning(message: &mut AgentMessage, random: &mut Random) {
    match &mut message.body {
        Some(Body::Dictionary(dictionary)) => {
            for thread in &mut dictionary.threads {
                thread.carrier = random.any() as u32;
            }
            if let Some(entries) = &mut dictionary.entries {
                spoil_entries(entries, random);
            }
        }
        Some(Body::Samples(batch)) => samples(batch, random),
        Some(Body::Statistics(statistics)) => {
            statistics.time_ns = random.any();
            for account in &mut statistics.threads {
                (account.thread, account.kernel_ns) = (random.any() as u32, random.any());
                (account.sampled_ns, account.carried_ns) = (random.any(), random.any());
            }
        }
        Some(Body::Heartbeat(heartbeat)) => heartbeat.time_ns = random.any(),
        _ => {}
    }
}

fn spoil_entries(entries: &mut Entries, random: &mut Random) {
    let first = [
        &mut entries.first_string,
        &mut entries.first_method,
        &mut entries.first_frame,
        &mut entries.first_node,
    ];
    let which = random.below(2 * first.len());
    if let Some(first) = first.into_iter().nth(which) {
        *first = random.any() as u32;
        return;
    }
    let columns = [
        &mut entries.method_class,
        &mut entries.method_name,
        &mut entries.frame_method,
        &mut entries.frame_line,
        &mut entries.frame_symbol,
        &mut entries.frame_library,
        &mut entries.node_parent,
        &mut entries.node_frame,
    ];
    let which = random.below(columns.len());
    columns.into_iter().nth(which).into_iter().for_each(|column| spoil(column, random, |any| any as u32));
    if let Some(text) = entries.string.first_mut() {
        *text = format!("{:x}", random.any());
    }
}

fn samples(batch: &mut SampleBatch, random: &mut Random) {
    match random.below(8) {
        0 => spoil(&mut batch.time_delta_us, random, |any| any),
        1 => spoil(&mut batch.cpu_units, random, |any| any),
        2 => spoil(&mut batch.count, random, |any| any),
        3 => spoil(&mut batch.thread, random, |any| any as u32),
        4 => batch.first_time_ns = random.any(),
        5 => batch.cpu_unit_ns = random.any(),
        _ => spoil(&mut batch.node, random, |any| any as u32),
    }
}

/// Another number somewhere, or another length.
fn spoil<T: Clone>(column: &mut Vec<T>, random: &mut Random, number: impl Fn(u64) -> T) {
    let at = random.below(column.len());
    match random.below(4) {
        0 => column.truncate(at),
        1 => column.push(number(random.any())),
        _ => column.iter_mut().skip(at).take(1).for_each(|old| *old = number(random.any())),
    }
}
