//! Options for experiments: `debug=NAME:VALUE`, which can be given several times.
//!
//! Problem: the loss of a queue of a given size can be measured only if size and drain are fixed, which no user needs.
//! Approach: one option, described in `design/queue-sizes.md`. Sizes and drains serve `tickwalk experiment`; everything
//! else is a developers' hook and exists with the cargo feature `hooks` only.
//! Invariant: without `debug=` nothing here has an effect.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use queue::{Capacity, SizeRange};
use sampler_thread::drain::pace::PaceTuning;
use sampler_thread::hooks::Hooks as SamplerHooks;

/// True in builds with the developers' hooks (cargo feature `hooks`).
pub const HAS_HOOKS: bool = cfg!(feature = "hooks");

/// The form of values, for the message to the user.
pub const FORM: &str = if HAS_HOOKS {
    "queue:16..2048, queue:64/fixed, drain:25ms, pause-drain:1s, stall:500ms, slabs:1, retune:50ms, stops, frozen, unmapped, \
     walk-times, compare-walks, shift:N, broken-layout, panic:callback, panic:sampler, stop-delay:300ms, signals:2000 or \
     clock-stamps"
} else {
    "queue:16..2048, queue:64/fixed, drain:25ms or pause-drain:1s"
};

/// Names of the developers' hooks.
const HOOKS: [&str; 14] = [
    "stall",
    "slabs",
    "retune",
    "stops",
    "frozen",
    "unmapped",
    "walk-times",
    "compare-walks",
    "shift",
    "broken-layout",
    "panic",
    "stop-delay",
    "signals",
    "clock-stamps",
];

/// The values that experiments fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebugOptions {
    /// Sizes of request queues.
    pub queues: SizeRange,
    /// Times of drains.
    pub pace: PaceTuning,
    pub hooks: Hooks,
}

/// Developers' hooks; without the feature none can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Number of stack copies of each size.
    pub slabs: Option<NonZeroUsize>,
    pub sampler: SamplerHooks,
    /// Names are read from a wrong place, to show that the self-test notices.
    pub broken_layout: bool,
    /// The next ThreadStart event panics.
    pub panics_at_start: bool,
    /// Time stamps are those of the monotonic clock.
    pub uses_clock: bool,
    /// Time between the end of events and the end of the timers.
    pub stop_delay: Option<Duration>,
    /// Signals a second that carriers of virtual threads get beside those of their timers
    /// (`agent/src/handler/extra_signals.rs`).
    pub signals: Option<NonZeroU32>,
}

/// Why a value was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugError {
    /// It has none of the forms of [`FORM`].
    Malformed,
    /// It is a developers' hook, which this build does not have.
    NoHooks,
}

impl Default for DebugOptions {
    fn default() -> Self {
        Self {
            queues: SizeRange { start: Capacity::Entries128, most: Capacity::Entries2048 },
            pace: PaceTuning::default(),
            hooks: Hooks::default(),
        }
    }
}

impl DebugOptions {
    /// Sets one of them; `parse_time` reads times as the other options have them.
    ///
    /// # Errors
    /// [`DebugError`].
    pub fn set(
        &mut self,
        text: &str,
        parse_time: impl Fn(&str) -> Option<Duration>,
    ) -> Result<(), DebugError> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let time = || parse_time(value).filter(|time| (MIN_TIME..=MAX_TIME).contains(time));
        if HOOKS.contains(&name) && !HAS_HOOKS {
            return Err(DebugError::NoHooks);
        }
        self.set_value(name, value, time).ok_or(DebugError::Malformed)
    }

    /// Number of stack copies of each size, if a hook fixes it.
    pub fn slabs(&self) -> Option<NonZeroUsize> {
        self.hooks.slabs
    }

    /// Returns whether a hook demands time stamps of the monotonic clock.
    pub fn uses_clock(&self) -> bool {
        self.hooks.uses_clock
    }

    fn set_value(&mut self, name: &str, value: &str, time: impl Fn() -> Option<Duration>) -> Option<()> {
        match name {
            "queue" => self.queues = sizes(value)?,
            "drain" => self.pace.period = Some(time()?),
            "pause-drain" => self.pace.pause = Some(time()?),
            "stall" => self.hooks.sampler.stall = Some(time()?),
            "slabs" => self.hooks.slabs = Some(value.parse().ok().filter(|slabs| *slabs <= MAX_SLABS)?),
            "retune" => self.hooks.sampler.retune = Some(time()?),
            "shift" => self.hooks.sampler.probe.shifted_walks = value.parse().ok()?,
            "stops" if value.is_empty() => self.hooks.sampler.probe.stops = true,
            "frozen" if value.is_empty() => self.hooks.sampler.probe.frozen = true,
            "unmapped" if value.is_empty() => self.hooks.sampler.probe.unmapped = true,
            "walk-times" if value.is_empty() => self.hooks.sampler.probe.times = true,
            "compare-walks" if value.is_empty() => self.hooks.sampler.compare = true,
            "panic" if value == "callback" => self.hooks.panics_at_start = true,
            "panic" if value == "sampler" => self.hooks.sampler.panics = true,
            "clock-stamps" if value.is_empty() => self.hooks.uses_clock = true,
            "stop-delay" => self.hooks.stop_delay = Some(time()?),
            "signals" => self.hooks.signals = Some(value.parse().ok().filter(|rate| *rate <= MAX_SIGNALS)?),
            "broken-layout" if value.is_empty() => self.hooks.broken_layout = true,
            _ => return None,
        }
        Some(())
    }
}

/// Most slabs of a size; their indices have ten bits to spare.
const MAX_SLABS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
/// Most signals a second; a sleep of the thread that sends them takes some 60 us longer than asked.
const MAX_SIGNALS: NonZeroU32 = NonZeroU32::new(20_000).expect("not zero");
const MIN_TIME: Duration = Duration::from_millis(1);
const MAX_TIME: Duration = Duration::from_secs(60);

/// Reads `START..MOST`, or `SIZE/fixed`; `START..MOST/fixed` never grows. Each is rounded up to a capacity.
fn sizes(value: &str) -> Option<SizeRange> {
    let (sizes, is_fixed) = match value.strip_suffix("/fixed") {
        Some(sizes) => (sizes, true),
        None => (value, false),
    };
    let (start, most) = sizes.split_once("..").unwrap_or((sizes, sizes));
    let capacity = |text: &str| {
        let entries: usize = text.parse().ok()?;
        (1..=Capacity::Entries2048.entries()).contains(&entries).then(|| Capacity::at_least(entries))
    };
    let (start, most) = (capacity(start)?, capacity(most)?);
    (start <= most).then_some(SizeRange { start, most: if is_fixed { start } else { most } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<DebugOptions, DebugError> {
        let mut options = DebugOptions::default();
        options.set(text, |text| text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis))?;
        Ok(options)
    }

    #[test]
    fn sizes_and_drains() {
        let queues =
            |text| set(text).map(|options| (options.queues.start.entries(), options.queues.most.entries()));
        assert_eq!(queues("queue:16..2048"), Ok((16, 2048)));
        assert_eq!(queues("queue:20..2000"), Ok((32, 2048)), "rounded up");
        assert_eq!(queues("queue:64/fixed"), Ok((64, 64)));
        assert_eq!(queues("queue:16..2048/fixed"), Ok((16, 16)));
        let pace = |text| set(text).map(|options| options.pace);
        assert_eq!(pace("drain:5ms").map(|pace| pace.period), Ok(Some(Duration::from_millis(5))));
        assert_eq!(pace("pause-drain:9ms").map(|pace| pace.pause), Ok(Some(Duration::from_millis(9))));
    }

    #[test]
    #[cfg(feature = "hooks")]
    fn developers_hooks() {
        let hooks = |text| set(text).map(|options| options.hooks);
        assert_eq!(hooks("slabs:3").map(|hooks| hooks.slabs), Ok(NonZeroUsize::new(3)));
        assert_eq!(
            hooks("retune:50ms").map(|hooks| hooks.sampler.retune),
            Ok(Some(Duration::from_millis(50)))
        );
        assert_eq!(hooks("shift:7").map(|hooks| hooks.sampler.probe.shifted_walks), Ok(7));
        assert_eq!(hooks("broken-layout").map(|hooks| hooks.broken_layout), Ok(true));
        assert_eq!(hooks("signals:2000").map(|hooks| hooks.signals), Ok(NonZeroU32::new(2000)));
        for text in [
            "signals:0",
            "signals:20001",
            "slabs:0",
            "slabs:1025",
            "retune:",
            "shift:",
            "shift:x",
            "shift",
            "stops:1",
        ] {
            assert_eq!(set(text), Err(DebugError::Malformed), "{text}");
        }
    }

    #[test]
    #[cfg(not(feature = "hooks"))]
    fn developers_hooks_are_not_in_this_build() {
        for text in HOOKS {
            assert_eq!(set(text), Err(DebugError::NoHooks), "{text}");
        }
    }

    #[test]
    fn mistakes() {
        for text in
            ["queue", "queue:", "queue:0", "queue:4096", "queue:64..32", "drain:0ms", "drain:5", "sleep:5ms"]
        {
            assert_eq!(set(text), Err(DebugError::Malformed), "{text}");
        }
    }
}
