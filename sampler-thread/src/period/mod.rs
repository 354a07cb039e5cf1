//! The period of the timers: the interval the user chose, the budget, and what the kernel can do.

pub mod budget;
pub mod interval;
