//! The verbs of the command line.

mod attach;
mod collect;
mod diff;
mod doctor;
mod experiment;
mod export;
mod flamegraph;
mod profiling;
mod query;
mod record;
mod serve;
mod top;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::Level;

/// CPU-time profiler for Java programs on HotSpot JVMs.
#[derive(Debug, Parser)]
#[command(version, name = "tickwalk", after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  tickwalk record -- java -jar app.jar          profile a program, print hot methods, draw a flame graph
  tickwalk attach --duration 30s PID            the same for a JVM that runs already
  tickwalk top recording.tickwalk               hot methods of a recording
  tickwalk flamegraph recording.tickwalk        flame graph of a recording
  tickwalk doctor                               check what this machine allows";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a program and record where its CPU time goes
    Record(record::Arguments),
    /// Profile a JVM that runs already, for a time or to its end
    Attach(attach::Arguments),
    /// Receive sessions of agents, keep them in files or in a store, and serve the page, until interrupted
    Collect(collect::Arguments),
    /// Show the methods or threads that used most CPU time
    Top(top::Arguments),
    /// Show a named view of a recording, a store or a running collector
    View(view::Arguments),
    /// Show which methods changed between two sources or two selections
    Diff(diff::Arguments),
    /// Print the answer of the HTTP API to a question, as JSON
    Query(query::Arguments),
    /// Serve the page of a recording, or of a store that no collector has open
    Serve(serve::Arguments),
    /// Write the page with flame graph, methods and threads as one HTML file
    Flamegraph(flamegraph::Arguments),
    /// Write a profile in the format of another tool
    Export(export::Arguments),
    /// Check whether this machine and its JDKs can be profiled
    Doctor(doctor::Arguments),
    /// Measure the profiler itself: queue sizes, and CPU time against the truth
    Experiment(experiment::Arguments),
}

impl Cli {
    /// Level of log events that are shown unless `TICKWALK_LOG` says otherwise.
    pub fn default_log_level(&self) -> Level {
        match self.verb {
            Verb::Collect(_) | Verb::Serve(_) => Level::INFO,
            _ => Level::WARN,
        }
    }

    /// Runs the verb.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Record(arguments) => record::run(arguments),
            Verb::Attach(arguments) => attach::run(arguments),
            Verb::Collect(arguments) => collect::run(arguments),
            Verb::Top(arguments) => top::run(arguments),
            Verb::View(arguments) => view::run(arguments),
            Verb::Diff(arguments) => diff::run(arguments),
            Verb::Query(arguments) => query::run(arguments),
            Verb::Serve(arguments) => serve::run(arguments),
            Verb::Flamegraph(arguments) => flamegraph::run(arguments),
            Verb::Export(arguments) => export::run(arguments),
            Verb::Doctor(arguments) => doctor::run(arguments),
            Verb::Experiment(arguments) => experiment::run(arguments),
        }
    }
}
