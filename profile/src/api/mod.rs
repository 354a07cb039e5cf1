//! Questions about a source by name and parameters, as the HTTP API, the page and the command line ask them.

mod parameters;
pub mod question;
