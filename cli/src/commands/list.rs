//! `tickwalk list`: shows the JVMs of this machine.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::jvm::list::{self, Row};
use crate::output::table::TableOutput;
use crate::output::tell;

#[derive(Debug, Default, Args)]
#[command(after_help = "\
STATE:
  idle                 can be profiled
  profiled             is being profiled
  other user           run tickwalk as that user or as the superuser
  undumpable           can be profiled; whether a profile is running cannot be seen (PR_SET_DUMPABLE)
  attach disabled      started with -XX:+DisableAttachMechanism
  no SIGQUIT handler   still starting, or started with -Xrs
  musl                 the agent needs glibc

CONTAINER is the beginning of the container's id, the systemd unit, or a namespace. Listing disturbs no JVM.")]
pub struct Arguments {
    #[command(flatten)]
    table: TableOutput,
}

/// Most characters of a program's command that are shown.
const SHOWN_CHARACTERS: usize = 100;

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.table.check()?;
    let rows = list::jvms().context("cannot read /proc")?;
    if arguments.table.is_json() {
        arguments.table.write(&serde_json::to_vec(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        tell!("tickwalk: no JVM runs here; inside of a container only its own processes are seen");
        return Ok(ExitCode::FAILURE);
    }
    let mut text = Vec::new();
    table(&rows, &mut text)?;
    arguments.table.write(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let mut cells = vec![["PID", "USER", "JDK", "STATE", "CONTAINER", "PROGRAM"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let cut = row.program.char_indices().nth(SHOWN_CHARACTERS).and_then(|(at, _)| row.program.get(..at));
        let program = cut.map_or_else(|| row.program.clone(), |beginning| format!("{beginning}..."));
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        [
            row.pid.to_string(),
            row.user.clone(),
            or_dash(&row.jdk),
            row.state.text().to_owned(),
            or_dash(&row.container),
            program,
        ]
    }));
    let widths: Vec<usize> = (0..5)
        .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    for row in cells {
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match number {
                0 => write!(out, "{cell:>width$}  ")?,
                _ => write!(out, "{cell:<width$}  ")?,
            }
        }
        writeln!(out, "{}", row[5])?;
    }
    Ok(())
}
