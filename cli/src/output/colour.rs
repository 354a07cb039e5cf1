//! Colours of reports on a terminal: large shares, titles and warnings. Pipes, files and `NO_COLOR` get plain text.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal;

/// Shares in percent from which a row is marked as large or notable.
const LARGE: f64 = 10.0;
const NOTABLE: f64 = 2.0;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Returns whether colours are shown on `stream`.
pub fn is_shown(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns a report with colours.
pub fn painted(text: &str) -> String {
    text.split_inclusive('\n').map(painted_line).collect()
}

fn painted_line(line: &str) -> Cow<'_, str> {
    let paint = |colour: &str, (start, rest): (&str, &str)| format!("{colour}{start}{PLAIN}{rest}").into();
    for (start, colour) in [("warning:", YELLOW), ("note:", CYAN)] {
        if line.starts_with(start) {
            return paint(colour, line.split_at(start.len()));
        }
    }
    if ["Hot ", "Call tree of ", "Waits by "].iter().any(|title| line.starts_with(title)) {
        return paint(BOLD, line.split_at(line.trim_end().len()));
    }
    let Some(end) = line.find(" %") else { return line.into() };
    match line[..end].trim_start().parse::<f64>() {
        Ok(share) if share >= LARGE => paint(RED, line.split_at(end + 2)),
        Ok(share) if share >= NOTABLE => paint(YELLOW, line.split_at(end + 2)),
        _ => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_shares_titles_and_warnings_have_colours() {
        let report = "\
2 samples, 98.1 % of CPU time explained
warning: cut
Hot methods
  12.0 %    1.0 %  a.B.c
   2.5 %    1.0 %  a.B.d
  <0.1 %    1.0 %  a.B.e
";
        let expected = "\
2 samples, 98.1 % of CPU time explained
\x1b[33mwarning:\x1b[0m cut
\x1b[1mHot methods\x1b[0m
\x1b[1;31m  12.0 %\x1b[0m    1.0 %  a.B.c
\x1b[33m   2.5 %\x1b[0m    1.0 %  a.B.d
  <0.1 %    1.0 %  a.B.e
";
        assert_eq!(painted(report), expected);
    }
}
