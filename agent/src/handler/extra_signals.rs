//! More signals than timers send, for stress: `debug=signals:RATE`, a developers' hook.
//!
//! Problem: timers of a thread's CPU clock expire on the kernel's tick, 250 times a second at most; a million
//! samples, or 100 million words of frozen frames, take hours.
//! Approach: a thread sends the timer's signal to each carrier on which a virtual thread is mounted, at moments of
//! its own: the handler, the walk and all checks are those of any sample. A signal is sent only after the one
//! before was taken, so a carrier that waits for a processor is not sampled twice at the same place.
//! Invariant: for programs whose carriers live as long as they do, because a slot's thread must not change between
//! the look at it and the signal. The weights mean nothing: such a sample stands for no CPU time.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackwalk::{HotSpot, LiveMemory, Memory};

use crate::handler::slots::{Shared, ThreadSlot};

/// Slots that are looked at: the threads of the program must be fewer.
const SLOTS: usize = 64;
/// Looks after which a signal counts as lost.
const PATIENCE: u32 = 1000;

/// Finds the threads that carry a virtual thread.
pub struct Carriers {
    pub shared: &'static Shared,
    pub memory: &'static LiveMemory,
    pub hotspot: Arc<HotSpot>,
}

/// `siginfo_t` of a timer's signal; the kernel checks that the rest is zero.
#[repr(C)]
#[derive(Clone, Copy)]
struct TimerInfo {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    timer: i32,
    overrun: i32,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<TimerInfo>() == size_of::<libc::siginfo_t>());

/// The last signal to a slot.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Claimed periods before it.
    periods: u64,
    /// Looks since that signal; 0 if none was sent.
    looks: u32,
}

impl Carriers {
    /// Starts the thread, which ends with the profile, and calls `exclude` with its kernel id first.
    ///
    /// # Errors
    /// As of a new thread.
    pub fn signal(self, rate: NonZeroU32, exclude: impl FnOnce(i32) + Send + 'static) -> std::io::Result<()> {
        let distance = Duration::from_secs(1) / rate.get();
        let run = move || {
            exclude(nix::unistd::gettid().as_raw());
            let mut last = [Last::default(); SLOTS];
            while !self.shared.stopping.load(Ordering::Relaxed) {
                // Its rate is the purpose of this hook.
                #[expect(clippy::disallowed_methods)]
                std::thread::sleep(distance);
                // Threads that a pause has stopped are all at the same few places.
                if self.shared.pauses.load(Ordering::Relaxed) & 1 == 1 {
                    continue;
                }
                for (slot, last) in self.shared.slots.iter().zip(&mut last) {
                    self.signal_one(slot, last);
                }
            }
        };
        std::thread::Builder::new().name("tickwalk-hook".to_owned()).spawn(run).map(drop)
    }

    fn signal_one(&self, slot: &'static ThreadSlot, last: &mut Last) {
        let Some(tid) = self.mounted(slot) else { return };
        let periods = slot.grid.periods();
        let waits = last.looks != 0 && last.looks < PATIENCE && last.periods == periods;
        if waits {
            last.looks += 1;
            return;
        }
        *last = Last { periods, looks: 1 };
        let info = TimerInfo {
            signal: self.shared.signal,
            error: 0,
            code: libc::SI_TIMER,
            padding: 0,
            timer: slot.timer.load(Ordering::Relaxed).wrapping_sub(1),
            overrun: 0,
            value: slot.signal_value(slot.grid.key()) as u64,
            rest: [0; 12],
        };
        let process = std::process::id();
        // SAFETY: `info` is a whole siginfo_t. A thread that has ended is an error without effect.
        unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, tid, self.shared.signal, &raw const info)
        };
    }

    /// Returns the kernel's id of the slot's thread, if a virtual thread is mounted on it.
    fn mounted(&self, slot: &ThreadSlot) -> Option<u32> {
        let thread = slot.java_thread.load(Ordering::Acquire);
        if thread == 0 {
            return None;
        }
        let entry = thread + u64::from(self.shared.offsets.cont_entry?);
        self.memory.read_u64(entry).ok().filter(|&entry| entry != 0)?;
        self.hotspot.thread_id(self.memory, thread)
    }
}
