//! The verbs of the command line, one module each.

mod annotate;
mod attach;
mod attachment;
mod busiest;
mod collect;
mod control;
mod diff;
mod doctor;
mod dump_stacks;
mod experiment;
mod export;
mod flamegraph;
mod gate;
mod lake;
mod list;
mod live;
mod live_top;
mod manual;
mod mcp;
mod profiling;
mod query;
mod record;
mod serve;
mod top;
mod tree;
mod verdict;
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
  tickwalk list                                 the JVMs of this machine
  tickwalk attach --duration 30s PID            the same for a running JVM
  tickwalk top recording.tickwalk               hot methods of a recording
  tickwalk top --callers HashMap.get recording.tickwalk   who calls a method
  tickwalk flamegraph recording.tickwalk        flame graph of a recording
  tickwalk gate -- java -jar a.jar --- java -jar b.jar   fail if b needs more CPU time than a
  tickwalk doctor                               check this machine and its JDKs";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a program and record its CPU time by stack
    Record(record::Arguments),
    /// List the JVMs of this machine
    List(list::Arguments),
    /// Profile a running JVM, for some time or until it ends
    Attach(attach::Arguments),
    /// Start a profile that a running JVM writes itself
    Start(control::Start),
    /// End the profile of a JVM and show its recording
    Stop(control::Stop),
    /// Show the profile of a JVM so far
    Dump(control::Dump),
    /// Print the stacks of all threads of a running JVM, native and Java frames
    DumpStacks(dump_stacks::Arguments),
    /// Show the state of the agent in a JVM
    Status(control::ShowStatus),
    /// Receive profiles from agents, keep them in files or in a store, and serve the store as a page and an API
    Collect(collect::Arguments),
    /// Show the methods or threads that used most CPU time
    Top(top::Arguments),
    /// Show the call tree
    Tree(tree::Arguments),
    /// Show the CPU time of a method's lines, beside its source text
    Annotate(annotate::Arguments),
    /// Show a named view of a recording, a store or a running collector
    View(view::Arguments),
    /// Show which methods changed between two sources or two selections
    Diff(diff::Arguments),
    /// Run two programs in turns and fail if the second one needs more CPU time
    Gate(gate::Arguments),
    /// Ask a question of the HTTP API and print the answer as JSON
    Query(query::Arguments),
    /// Serve the page of a recording, of a store that no collector uses, or of a lake
    Serve(serve::Arguments),
    /// Write a page with flame graph, methods and threads as one HTML file
    Flamegraph(flamegraph::Arguments),
    /// Compact a lake of Parquet files, remove old ones, or print views for SQL engines
    Lake(lake::Arguments),
    /// Write a profile in the format of another tool
    Export(export::Arguments),
    /// Serve tools for AI assistants over standard input and output (Model Context Protocol)
    Mcp(mcp::Arguments),
    /// Check whether this machine and its JDKs can be profiled
    Doctor(doctor::Arguments),
    /// Print the completions of a shell
    Completions(manual::Completions),
    /// Write the man pages of all verbs into a directory
    #[command(hide = true)]
    Man(manual::Man),
    /// Measure the profiler itself: losses by queue size, and the error of CPU times
    Experiment(experiment::Arguments),
}

impl Cli {
    /// Returns the log level for the verb; `TICKWALK_LOG` overrides it.
    pub fn default_log_level(&self) -> Level {
        match self.verb {
            Verb::Collect(_) | Verb::Serve(_) => Level::INFO,
            _ => Level::WARN,
        }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Record(arguments) => record::run(arguments),
            Verb::List(arguments) => list::run(&arguments),
            Verb::Attach(arguments) => attach::run(arguments),
            Verb::Start(arguments) => control::start(&arguments),
            Verb::Stop(arguments) => control::stop(&arguments),
            Verb::Dump(arguments) => control::dump(&arguments),
            Verb::DumpStacks(arguments) => dump_stacks::run(&arguments),
            Verb::Status(arguments) => control::status(&arguments),
            Verb::Collect(arguments) => collect::run(arguments),
            Verb::Top(arguments) => top::run(arguments),
            Verb::Tree(arguments) => tree::run(arguments),
            Verb::Mcp(arguments) => mcp::run(&arguments),
            Verb::Annotate(arguments) => annotate::run(arguments),
            Verb::View(arguments) => view::run(arguments),
            Verb::Diff(arguments) => diff::run(arguments),
            Verb::Gate(arguments) => gate::run(arguments),
            Verb::Query(arguments) => query::run(arguments),
            Verb::Serve(arguments) => serve::run(arguments),
            Verb::Flamegraph(arguments) => flamegraph::run(arguments),
            Verb::Lake(arguments) => lake::run(&arguments),
            Verb::Export(arguments) => export::run(arguments),
            Verb::Doctor(arguments) => doctor::run(arguments),
            Verb::Completions(arguments) => manual::completions(&arguments),
            Verb::Man(arguments) => manual::man(&arguments),
            Verb::Experiment(arguments) => experiment::run(arguments),
        }
    }
}
