//! The period of the timers: the interval, the budget, the kernel's tick.

pub mod aim;
pub mod budget;
pub mod interval;
pub(crate) mod tick;
