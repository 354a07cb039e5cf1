//! Options of the agent as flags of the verbs that begin a profile, with the names and meanings of the agent's own table.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::agent_options::{AgentOption, OPTIONS};

/// Options with flags from here. The others have flags of their own, or belong to a destination that the command chooses.
const NAMES: [&str; 15] = [
    "mode",
    "threads",
    "skipthreads",
    "native",
    "vm",
    "service",
    "label",
    "clock",
    "signal",
    "gcdrain",
    "redact",
    "maxstack",
    "depth",
    "log",
    "logfile",
];

const HEADING: &str = "Options of the agent";

/// The options that were given.
#[derive(Clone, Debug, Default)]
pub struct AgentFlags(Vec<(&'static str, String)>);

impl AgentFlags {
    /// Returns the options as the agent reads them.
    pub fn options(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

fn flags() -> impl Iterator<Item = &'static AgentOption> {
    OPTIONS.iter().filter(|option| NAMES.contains(&option.name))
}

/// The agent's syntax separates options by commas.
fn without_comma(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(',') {
        Err("write a value without commas")
    } else {
        Ok(text.to_owned())
    }
}

impl Args for AgentFlags {
    fn augment_args(command: Command) -> Command {
        flags().fold(command, |command, option| {
            let default = option.default.replace('`', "");
            let mut help = option.meaning.replace('`', "");
            if !default.is_empty() {
                help.push_str(&format!(" [default: {default}]"));
            }
            let flag = Arg::new(option.name).long(option.name).value_name(option.value).help(help);
            command.arg(flag.action(ArgAction::Append).value_parser(without_comma).help_heading(HEADING))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AgentFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = flags().flat_map(|option| {
            let values = matches.get_many::<String>(option.name).into_iter().flatten();
            values.map(move |value| (option.name, value.clone()))
        });
        Ok(AgentFlags(values.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_options() {
        let command = AgentFlags::augment_args(Command::new("record"));
        let given = ["record", "--depth", "100", "--label", "a=b", "--label", "c=d"];
        let flags = AgentFlags::from_arg_matches(&command.clone().get_matches_from(given)).expect("valid");
        assert_eq!(flags.options(), ["label=a=b", "label=c=d", "depth=100"]);
        assert!(command.try_get_matches_from(["record", "--service", "a,b"]).is_err());
        assert!(NAMES.iter().all(|name| OPTIONS.iter().any(|option| option.name == *name)));
    }
}
