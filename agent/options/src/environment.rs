//! Options from the environment: `TICKWALK_INTERVAL=1ms` stands for `interval=1ms`.
//!
//! Options that are written out come later and count.

use std::ffi::OsString;

use super::table::OPTIONS;

const VARIABLES: &str = "TICKWALK_";

/// Variables of the command `tickwalk` with the name of an option: its log filter has another syntax.
const OF_THE_COMMAND: [&str; 1] = ["log"];

/// Returns the options that are among the `variables`, as a text.
pub fn options(variables: impl Iterator<Item = (OsString, OsString)>) -> String {
    let given = variables.filter_map(|(name, value)| {
        Some((name.to_str()?.strip_prefix(VARIABLES)?.to_owned(), value.into_string().ok()?))
    });
    let given: Vec<(String, String)> = given.filter(|(_, value)| !value.is_empty()).collect();
    let mut parts = Vec::new();
    for option in &OPTIONS {
        let stands_for =
            |name: &str| name.bytes().eq(option.name.bytes().map(|byte| byte.to_ascii_uppercase()));
        let Some((_, value)) = given.iter().find(|(name, _)| stands_for(name)) else { continue };
        let is_left_out = OF_THE_COMMAND.contains(&option.name) && value.contains(['=', ':']);
        match value.as_str() {
            _ if is_left_out => {}
            "true" | "1" if option.is_switch() => parts.push(option.name.to_owned()),
            "false" | "0" if option.is_switch() => {}
            value => parts.push(format!("{}={value}", option.name)),
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{BadRequest, Door, OptionError, Options, Request};

    fn with(variables: &[(&str, &str)]) -> String {
        options(variables.iter().map(|&(name, value)| (name.into(), value.into())))
    }

    fn parsed(variables: &[(&str, &str)], text: &str) -> Result<Options, BadRequest> {
        Ok(Request::of_layers(Door::Load, &[&with(variables), text])?.options)
    }

    #[test]
    fn variables_stand_for_options_and_written_ones_count() {
        let variables = [("TICKWALK_INTERVAL", "1ms"), ("TICKWALK_STRICT", "1"), ("TICKWALK_FILE", "/tmp/a")];
        let options = parsed(&variables, "interval=5ms").expect("valid");
        assert_eq!(options.interval, Duration::from_millis(5));
        assert!(options.strict && options.file.as_deref() == Some("/tmp/a".as_ref()));
        let options = parsed(&variables, "collector=unix:/s").expect("valid");
        assert_eq!(options.file, None, "the destination that is written out is the only one");
        assert_eq!(with(&[("TICKWALK_INSECURE", "false")]), "");
        for (name, value) in [("TICKWALK_interval", "1ms"), ("INTERVAL", "1ms"), ("TICKWALK_INTERVAL", "")] {
            assert_eq!(with(&[(name, value)]), "", "{name}={value}");
        }
        assert_eq!(with(&[("TICKWALK_LOG", "collector=debug")]), "", "the command's filter");
        let bad = parsed(&[("TICKWALK_DEPTH", "1")], "").expect_err("a mistake").error;
        assert!(matches!(bad, OptionError::BadValue { option: "depth", .. }));
    }
}
