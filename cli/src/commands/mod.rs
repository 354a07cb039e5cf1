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

use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Parser, Subcommand};
use collector::profile::Profile;
use collector::store::Store;
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
    /// Receive sessions of agents, keep them in files or in a store, and answer questions, until interrupted
    Collect(collect::Arguments),
    /// Show the methods of a recording that used most CPU time
    Top(top::Arguments),
    /// Show a named view of a recording, a store or a running collector
    View(view::Arguments),
    /// Show which methods changed between two recordings or two times
    Diff(diff::Arguments),
    /// Ask a question of the HTTP API, answered as JSON
    Query(query::Arguments),
    /// Show a recording, or a store that no collector has open, as pages in the browser
    Serve(serve::Arguments),
    /// Draw the flame graph of a recording as one HTML file
    Flamegraph(flamegraph::Arguments),
    /// Convert a recording for other tools
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

fn read_profile(recording: &Path) -> anyhow::Result<Profile> {
    Profile::read(recording).map_err(|error| anyhow!("{}: {error}", recording.display()))
}

fn open_recording(recording: &Path) -> anyhow::Result<Store> {
    Store::of_recording(recording).map_err(|error| anyhow!("{}: {error}", recording.display()))
}
