//! Parses the known answer that a workload prints: its `truth key=value ...` lines.

use std::collections::BTreeMap;

/// The truth lines of one run.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    lines: Vec<BTreeMap<String, String>>,
}

impl Truth {
    /// Parses the truth lines in the standard output of a workload.
    pub fn parse(stdout: &str) -> Self {
        Self { lines: stdout.lines().filter_map(parse_line).collect() }
    }

    /// Returns the CPU time of `method` and its callees, in nanoseconds.
    ///
    /// # Panics
    /// If the workload did not print it.
    pub fn method_cpu_ns(&self, method: &str) -> u64 {
        self.number("method", method, "cpu_ns")
    }

    /// Returns the CPU time of the thread of this name at its end, in nanoseconds.
    ///
    /// # Panics
    /// If the workload did not print it.
    pub fn thread_cpu_ns(&self, thread: &str) -> u64 {
        self.number("thread", thread, "cpu_ns")
    }

    /// Returns `field` of the last line in which `key` has this value.
    ///
    /// # Panics
    /// If there is no such line, or the field is not a number.
    pub fn number(&self, key: &str, value: &str, field: &str) -> u64 {
        self.lines
            .iter()
            .rev()
            .find(|line| line.get(key).is_some_and(|found| found == value))
            .and_then(|line| line.get(field))
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                panic!("no truth line with {key}={value} and a number {field}: {:?}", self.lines)
            })
    }
}

/// Parses one line; returns `None` if it is not a truth line.
pub(crate) fn parse_line(line: &str) -> Option<BTreeMap<String, String>> {
    let fields = line.strip_prefix("truth ")?;
    Some(
        fields
            .split_whitespace()
            .filter_map(|field| field.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_truth_line_is_used() {
        let truth = Truth::parse(
            "hello\ntruth method=A.b cpu_ns=1\nnot truth method=A.b cpu_ns=9\ntruth method=A.b cpu_ns=2 depth=7\n",
        );
        assert_eq!(truth.method_cpu_ns("A.b"), 2);
        assert_eq!(truth.number("method", "A.b", "depth"), 7);
    }
}
