//! `tickwalk top`: hot methods and busy threads of a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use collector::export::table;
use collector::query::top::Order;
use collector::summary::Summary;

use super::read_profile;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk top recording.tickwalk
  tickwalk top --by total --limit 50 recording.tickwalk
  tickwalk top --json recording.tickwalk")]
pub struct Arguments {
    /// Print the account of CPU time as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Show one table only, by this CPU time
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Methods or threads shown in each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Recording to read
    recording: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// CPU time in the method's own code
    #[value(name = "self")]
    SelfTime,
    /// CPU time in the method and all it called
    Total,
    /// Threads instead of methods, virtual threads with their carriers
    Thread,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let profile = read_profile(&arguments.recording)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&Summary::new(&profile))? + "\n"
    } else if let Some(By::Thread) = arguments.by {
        table::threads(&profile, arguments.limit)
    } else {
        let orders: &[Order] = match arguments.by {
            Some(By::SelfTime) => &[Order::SelfTime],
            Some(By::Total) => &[Order::TotalTime],
            Some(By::Thread) | None => &[Order::SelfTime, Order::TotalTime],
        };
        table::report(&profile, orders, arguments.limit)
    };
    output::print(|out| out.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}
