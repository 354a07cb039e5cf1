//! The tests of the collector in one program, so that it is linked once.

#[path = "support/otlp_rules.rs"]
mod otlp_rules;
#[path = "support/recorded.rs"]
mod recorded;
mod support;

mod account;
mod earlier;
mod exports;
mod flamegraph_html;
mod forward;
mod health;
mod http_api;
mod ingest;
mod lakes;
mod modes;
mod page;
mod query;
mod recording;
mod snapshots;
mod stack_ids;
mod virtual_threads;
mod wide_trees;
