//! Questions that a source of samples answers.
//!
//! [`selection`] describes what a question is about; [`tree`], [`difference`], [`timeline`] and [`processes`] answer it,
//! [`view`] as text. [`embedded`] is the data of the page in a file of its own. Command line, HTTP API and page use
//! [`question`].

pub mod difference;
pub mod drains;
pub mod embedded;
pub mod error;
pub mod matches;
pub mod parameters;
pub mod processes;
pub mod question;
pub mod selection;
pub mod threads;
pub mod timeline;
pub mod tree;
pub mod view;
