//! Profiles in the forms other tools and people read.

pub mod collapsed;
pub mod flamegraph_html;
pub mod table;
