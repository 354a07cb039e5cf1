//! Hooks for experiments: `debug=NAME:VALUE`, which can be given several times.
//!
//! Problem: how many samples a queue of a given size loses can be measured only if size and drain are held still, which
//! no user should ever do.
//! Approach: one option that says what it is for; `design/queue-sizes.md` describes it.
//! Invariant: without `debug=` nothing here has an effect.

use std::num::NonZeroUsize;
use std::time::Duration;

use queue::{Capacity, SizeRange};
use sampler_thread::drain::pace::PaceTuning;
use sampler_thread::probe::Probe;

/// What values look like, for the message to the user.
pub const FORM: &str = "queue:16..2048, queue:64/fixed, drain:25ms, pause-drain:1s, stall:500ms, slabs:1, retune:50ms, \
                        stops, walk-times, shift:N or broken-layout";

/// What experiments hold still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebugOptions {
    /// Sizes of request queues.
    pub queues: SizeRange,
    /// When the sampler drains.
    pub pace: PaceTuning,
    /// So many stack copies of each size and no more.
    pub slabs: Option<NonZeroUsize>,
    /// How often the timers' period changes for no reason.
    pub retune: Option<Duration>,
    /// What the sampler does with each walk besides its sample.
    pub probe: Probe,
    /// Names are read from a wrong place, to see that the self-test notices.
    pub broken_layout: bool,
}

impl Default for DebugOptions {
    fn default() -> Self {
        let queues = SizeRange { start: Capacity::Entries16, most: Capacity::Entries2048 };
        let (pace, probe) = (PaceTuning::default(), Probe::default());
        Self { queues, pace, slabs: None, retune: None, probe, broken_layout: false }
    }
}

impl DebugOptions {
    /// Sets one hook; `parse_time` reads times as the other options have them. `None` if `text` is none of [`FORM`].
    pub fn set(&mut self, text: &str, parse_time: impl Fn(&str) -> Option<Duration>) -> Option<()> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let time = || parse_time(value).filter(|time| (MIN_TIME..=MAX_TIME).contains(time));
        match name {
            "queue" => self.queues = sizes(value)?,
            "drain" => self.pace.period = Some(time()?),
            "pause-drain" => self.pace.pause = Some(time()?),
            "stall" => self.pace.stall = Some(time()?),
            "slabs" => self.slabs = Some(value.parse().ok().filter(|slabs| *slabs <= MAX_SLABS)?),
            "retune" => self.retune = Some(time()?),
            "shift" => self.probe.shifted_walks = value.parse().ok()?,
            "stops" if value.is_empty() => self.probe.stops = true,
            "walk-times" if value.is_empty() => self.probe.times = true,
            "broken-layout" if value.is_empty() => self.broken_layout = true,
            _ => return None,
        }
        Some(())
    }
}

/// More of each size would not fit into what they are numbered with.
const MAX_SLABS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
const MIN_TIME: Duration = Duration::from_millis(1);
const MAX_TIME: Duration = Duration::from_secs(60);

/// `START..MOST`, or `SIZE/fixed`, or `START..MOST/fixed`, which is START for ever; each is rounded up to a class.
fn sizes(value: &str) -> Option<SizeRange> {
    let (sizes, fixed) = match value.strip_suffix("/fixed") {
        Some(sizes) => (sizes, true),
        None => (value, false),
    };
    let (start, most) = sizes.split_once("..").unwrap_or((sizes, sizes));
    let class = |text: &str| {
        let entries: usize = text.parse().ok()?;
        (1..=Capacity::Entries2048.entries()).contains(&entries).then(|| Capacity::at_least(entries))
    };
    let (start, most) = (class(start)?, class(most)?);
    (start <= most).then_some(SizeRange { start, most: if fixed { start } else { most } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Option<DebugOptions> {
        let mut options = DebugOptions::default();
        options.set(text, |text| text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis))?;
        Some(options)
    }

    #[test]
    fn hooks() {
        let queues =
            |text| set(text).map(|options| (options.queues.start.entries(), options.queues.most.entries()));
        assert_eq!(queues("queue:16..2048"), Some((16, 2048)));
        assert_eq!(queues("queue:20..2000"), Some((32, 2048)), "rounded up");
        assert_eq!(queues("queue:64/fixed"), Some((64, 64)));
        assert_eq!(queues("queue:16..2048/fixed"), Some((16, 16)));
        assert_eq!(set("drain:5ms").and_then(|options| options.pace.period), Some(Duration::from_millis(5)));
        assert_eq!(set("stall:5ms").and_then(|options| options.pace.stall), Some(Duration::from_millis(5)));
        assert_eq!(set("slabs:3").and_then(|options| options.slabs), NonZeroUsize::new(3));
        assert_eq!(set("retune:50ms").and_then(|options| options.retune), Some(Duration::from_millis(50)));
        assert_eq!(
            set("pause-drain:9ms").and_then(|options| options.pace.pause),
            Some(Duration::from_millis(9))
        );
    }

    #[test]
    fn mistakes() {
        for text in [
            "queue",
            "queue:",
            "queue:0",
            "queue:4096",
            "queue:64..32",
            "drain:0ms",
            "drain:5",
            "sleep:5ms",
            "slabs:0",
            "slabs:1025",
            "retune:",
        ] {
            assert_eq!(set(text), None, "{text}");
        }
    }
}
