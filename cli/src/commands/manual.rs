//! `tickwalk completions` and `tickwalk man`: shell completions and man pages, from the same definitions as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk completions bash > /etc/bash_completion.d/tickwalk
  source <(tickwalk completions zsh)")]
pub struct Completions {
    /// Shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Directory for tickwalk.1 and a page for each verb
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn completions(arguments: &Completions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "tickwalk", &mut script);
    output::print(|out| out.write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(arguments: &Man) -> anyhow::Result<ExitCode> {
    output::check_writable(&arguments.directory.join("tickwalk.1"))?;
    clap_mangen::generate_to(Cli::command(), &arguments.directory)?;
    Ok(ExitCode::SUCCESS)
}
