//! Queries over a source of samples.
//!
//! A [`selection`] chooses samples; [`flat`], [`tree`], [`difference`], [`regression`], [`lines`], [`timeline`] and
//! [`processes`] compute answers, [`view`] as text. [`embedded`] computes the data of a self-contained page,
//! [`part`] is what a question reads of a source that is too large to be read as a whole.
//!
//! Every query fails if its source cannot be read; other errors are named where they occur.

mod blocked;
pub mod difference;
pub mod embedded;
pub mod error;
pub mod flat;
pub mod kinds;
pub mod lines;
pub mod matches;
mod method_name;
pub mod modes;
mod moment;
mod node_sums;
pub mod part;
pub mod process;
pub mod processes;
pub mod regression;
pub mod roots;
pub mod selection;
pub mod span;
pub mod summary;
pub mod threads;
pub mod timeline;
pub mod tree;
pub mod view;
pub mod waiting;
pub mod waits;
