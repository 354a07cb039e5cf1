//! The agent's options as flags of the verbs that start a profile, generated from the agent's own table.

use agent_options::table::{AgentOption, OPTIONS};
use agent_options::{Door, Mode, Request};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

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
    OPTIONS.iter().filter(|option| option.is_flag)
}

/// Short flags, as in async-profiler's launcher.
const LETTERS: [(&str, char); 1] = [("interval", 'i')];
/// Options that set the same thing.
const EXCLUSIVE: [(&str, &str); 1] = [("rate", "interval")];

/// The agent would refuse the options, or they would have no effect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongOptions(String);

/// Checks options with the agent's own parser; `before` are defaults.
pub fn check(before: &str, options: &str) -> Result<(), WrongOptions> {
    let wrong = |reason: &dyn std::fmt::Display| Err(WrongOptions(reason.to_string()));
    let request = match Request::of_layers(Door::Command, &[before, options]) {
        Ok(request) => request,
        Err(bad) => return wrong(&bad),
    };
    match request.warnings.first() {
        Some(warning) => wrong(warning),
        None if request.options.mode == Mode::Api || !request.options.starts => {
            wrong(&"mode=api and start=no start no profile; leave them out")
        }
        None => Ok(()),
    }
}

/// Checks one option.
fn checked(option: &AgentOption, value: &str) -> Result<String, WrongOptions> {
    // The agent's syntax separates options by commas.
    if value.is_empty() || value.contains(',') {
        return Err(WrongOptions("write a value without commas".to_owned()));
    }
    match Request::parse(Door::Command, &format!("{}={value}", option.name)) {
        Ok(_) => Ok(value.to_owned()),
        Err(bad) => Err(WrongOptions(bad.to_string())),
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
            let mut flag = Arg::new(option.name).long(option.name).value_name(option.value).help(help);
            if let Some((_, letter)) = LETTERS.iter().find(|(name, _)| *name == option.name) {
                flag = flag.short(*letter);
            }
            if let Some((_, other)) = EXCLUSIVE.iter().find(|(name, _)| *name == option.name) {
                flag = flag.conflicts_with(*other);
            }
            let read = move |text: &str| checked(option, text);
            command.arg(flag.action(ArgAction::Append).value_parser(read).help_heading(HEADING))
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
        let refused = |given: &[&str]| command.clone().try_get_matches_from(given).is_err();
        assert!(refused(&["record", "--service", "a,b"]) && refused(&["record", "--mode", "alloc"]));
        assert!(refused(&["record", "--rate", "500/s", "-i", "1ms"]) && !refused(&["record", "-i", "1ms"]));
    }

    #[test]
    fn options_are_checked_together() {
        for wrong in
            ["mode=wall,budget=1%", "colour=red", "title=x", "duration=100ms", "mode=api", "loop=1h,file=a"]
        {
            assert!(check("", wrong).is_err(), "{wrong}");
        }
        assert!(check("budget=1%", "mode=wall,interval=5ms").is_ok(), "what comes before is a default");
        assert!(check("depth=1", "interval=5ms").is_err());
    }
}
