//! CPU time by line of methods, with the text of the file if the source has it.
//!
//! Paths never come from a request: the file of a method comes from the recording, and [`Source::source_text`] decides
//! whether it may be read.

use std::cmp::Reverse;
use std::fmt::Write;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::error::QueryError;
use super::flat::{Flat, MethodCost, Order};
use super::method_name::named_by;
use super::selection::Selection;
use super::span::Span;
use super::tree::Naming;
use crate::dictionary::frame_parts::FrameParts;
use crate::source::{Source, with_dictionary};
use crate::text::quantity::{duration, percent_of, total};

/// Lines of text shown before the first and after the last sampled line of a method.
const AROUND: u32 = 6;

/// Maximum number of lines of text of an answer.
const MOST_TEXT: u32 = 1_000;

/// Maximum number of signatures of an answer: the overloads of a method.
const MOST_SIGNATURES: usize = 16;

/// CPU time of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LineCost {
    /// Line of the file, from 1; 0 if it is unknown.
    pub line: u32,
    pub self_ns: u64,
    pub self_samples: u64,
    pub total_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TextLine {
    pub line: u32,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MethodLines {
    pub method: String,
    /// Full name of the class; empty for other than Java code.
    pub class: String,
    /// Descriptors of the sampled methods with this name.
    pub signatures: Vec<String>,
    /// File with its package as a path; empty if it is unknown.
    pub file: String,
    /// Lines in the order of the file.
    pub lines: Vec<LineCost>,
    /// Text of the file around the lines; empty if it is not available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<TextLine>,
}

impl MethodLines {
    fn add(&mut self, parts: &FrameParts) {
        if self.class.is_empty() {
            self.class = parts.class.replace('/', ".");
        }
        if self.file.is_empty() {
            self.file.clone_from(&parts.file);
        }
        let is_new = !parts.signature.is_empty() && !self.signatures.contains(&parts.signature);
        if is_new && self.signatures.len() < MOST_SIGNATURES {
            self.signatures.push(parts.signature.clone());
        }
    }

    /// Sets the text to that part of the file which surrounds the lines.
    fn cut_text(&mut self, file: &str) {
        let known = || self.lines.iter().map(|line| line.line).filter(|&line| line > 0);
        let (Some(first), Some(last)) = (known().min(), known().max()) else { return };
        let first = first.saturating_sub(AROUND).max(1);
        let last = last.saturating_add(AROUND).min(first.saturating_add(MOST_TEXT - 1));
        let lines = (1u32..).zip(file.lines()).skip(first as usize - 1);
        let shown = lines.take_while(|&(line, _)| line <= last);
        self.text = shown.map(|(line, text)| TextLine { line, text: text.trim_end().to_owned() }).collect();
    }
}

/// Every method of a selection by line.
#[derive(Debug)]
pub struct Lines {
    by_method: FxHashMap<String, Vec<LineCost>>,
    total_ns: u64,
    span: Span,
}

impl Lines {
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<Lines, QueryError> {
        let (flat, span) = Flat::named(source, selection, Naming::Line, now_ns)?;
        let mut by_method: FxHashMap<String, Vec<LineCost>> = FxHashMap::default();
        for MethodCost { name, self_ns, self_samples, total_ns, .. } in flat.methods(Order::SelfTime) {
            let (method, line) = split(&name);
            let cost = LineCost { line, self_ns, self_samples, total_ns };
            by_method.entry(method.to_owned()).or_default().push(cost);
        }
        by_method.values_mut().for_each(|lines| lines.sort_unstable_by_key(|line| line.line));
        Ok(Lines { by_method, total_ns: flat.total_ns(), span })
    }

    /// Returns the CPU time of the selection.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Returns the time that the selection covers.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the full name of `method`: itself, or the only method that ends with it, such as `HashMap.get`. Without
    /// a name, the method with most CPU time of its own. `None` if no sample is in it.
    fn find(&self, method: Option<&str>) -> Result<Option<&str>, QueryError> {
        let own_ns = |name: &str| total(self.by_method[name].iter().map(|line| line.self_ns));
        let mut names: Vec<&str> = self.by_method.keys().map(String::as_str).collect();
        names.sort_by_cached_key(|&name| (Reverse(own_ns(name)), name));
        let Some(method) = method else { return Ok(names.into_iter().find(|name| !name.starts_with('['))) };
        match named_by(method, names.iter().copied()) {
            Err(QueryError::NoMethod(_)) => Ok(None),
            place => Ok(Some(names[place?])),
        }
    }

    /// Describes the methods for which `is_wanted` holds, sorted by name.
    pub fn describe(
        &self,
        source: &dyn Source,
        is_wanted: impl Fn(&str, &[LineCost]) -> bool,
    ) -> Result<Vec<MethodLines>, QueryError> {
        let wanted = self.by_method.iter().filter(|(method, lines)| is_wanted(method, lines));
        let mut methods: FxHashMap<&str, MethodLines> = wanted
            .map(|(method, lines)| {
                let lines =
                    MethodLines { method: method.clone(), lines: lines.clone(), ..MethodLines::default() };
                (method.as_str(), lines)
            })
            .collect();
        let range_ns = self.span.range_ns();
        for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
            with_dictionary(&**part, |dictionary| {
                // A method has many frames, with different lines.
                let mut seen = FxHashSet::default();
                for frame in 0..dictionary.frame_count() as u32 {
                    let row = dictionary.frame(frame);
                    if row.method == 0 || !seen.insert(row.method) {
                        continue;
                    }
                    if let Some(method) = methods.get_mut(&*dictionary.frame_text(frame)) {
                        method.add(&FrameParts::of(dictionary, frame));
                    }
                }
            })?;
        }
        let mut methods: Vec<MethodLines> = methods.into_values().collect();
        methods.sort_unstable_by(|a, b| a.method.cmp(&b.method));
        Ok(methods)
    }

    /// Describes the Java methods that have at least a thousandth of the CPU time in a line, each with its `limit`
    /// heaviest lines.
    pub fn hottest(&self, source: &dyn Source, limit: usize) -> Result<Vec<MethodLines>, QueryError> {
        let least_ns = (self.total_ns / 1_000).max(1);
        let mut methods =
            self.describe(source, |_, lines| lines.iter().any(|line| line.total_ns >= least_ns))?;
        methods.retain(|method| !method.class.is_empty());
        for method in &mut methods {
            method.lines.sort_by_key(|line| Reverse((line.self_ns, line.total_ns)));
            method.lines.truncate(limit);
            method.lines.sort_unstable_by_key(|line| line.line);
        }
        Ok(methods)
    }

    /// Describes one method, with the text of its file if `source` has it. A method without samples has no lines.
    pub fn method(&self, source: &dyn Source, method: Option<&str>) -> Result<MethodLines, QueryError> {
        let unknown =
            || MethodLines { method: method.unwrap_or_default().to_owned(), ..MethodLines::default() };
        let Some(name) = self.find(method)? else { return Ok(unknown()) };
        let found = self.describe(source, |method, _| method == name)?.pop();
        let mut found = found.unwrap_or_else(unknown);
        if let Some(text) =
            Some(&found.file).filter(|file| !file.is_empty()).and_then(|file| source.source_text(file))
        {
            found.cut_text(&text);
        }
        Ok(found)
    }

    /// Returns `method` as text: its lines with their CPU time, beside the source text if there is one.
    pub fn text(&self, method: &MethodLines) -> String {
        let mut text = method.method.clone();
        let place = if method.file.is_empty() { "its file is unknown" } else { &method.file };
        // Writing to a String cannot fail, here and below.
        let _ =
            write!(text, "  ({place})\n\n{:>8} {:>8} {:>11}  {:>6}\n", "self", "total", "self time", "line");
        let cells = |cost: Option<&LineCost>| match cost {
            None => format!("{:>8} {:>8} {:>11}", "", "", ""),
            Some(cost) => format!(
                "{:>8} {:>8} {:>11}",
                percent_of(cost.self_ns, self.total_ns),
                percent_of(cost.total_ns, self.total_ns),
                duration(cost.self_ns)
            ),
        };
        let shown =
            method.text.first().map_or(0, |row| row.line)..=method.text.last().map_or(0, |row| row.line);
        let is_outside = |cost: &&LineCost| method.text.is_empty() || !shown.contains(&cost.line);
        let outside = method.lines.iter().filter(is_outside).map(|cost| (Some(cost), cost.line, ""));
        let inside = method.text.iter().map(|TextLine { line, text }| {
            (method.lines.iter().find(|cost| cost.line == *line), *line, text.as_str())
        });
        for (cost, line, code) in outside.chain(inside) {
            let line = if line == 0 { "?".to_owned() } else { line.to_string() };
            let row = format!("{}  {line:>6}  {code}", cells(cost));
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Splits the name of a line into the name of the method and the line, 0 if it has none.
fn split(name: &str) -> (&str, u32) {
    match name.rsplit_once(':') {
        Some((method, line)) => line.parse().map_or((name, 0), |line| (method, line)),
        None => (name, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: &[u32]) -> MethodLines {
        let cost = |&line| LineCost { line, self_ns: 1, self_samples: 1, total_ns: 1 };
        MethodLines { lines: numbers.iter().map(cost).collect(), ..MethodLines::default() }
    }

    #[test]
    fn names_of_lines_are_split() {
        assert_eq!(split("a.B.c:12"), ("a.B.c", 12));
        assert_eq!(split("a.B.c"), ("a.B.c", 0));
        assert_eq!(split("std::vector"), ("std::vector", 0));
    }

    #[test]
    fn text_is_cut_around_the_lines() {
        let file: String = (1..=3_000).map(|line| format!("line {line}  \n")).collect();
        let check = |numbers: &[u32], expected: Option<(u32, u32)>| {
            let mut method = lines(numbers);
            method.cut_text(&file);
            let ends = method.text.first().zip(method.text.last()).map(|(a, b)| (a.line, b.line));
            assert_eq!(ends, expected, "{numbers:?}");
            assert!(method.text.iter().all(|row| row.text == format!("line {}", row.line)));
        };
        check(&[0, 20, 30], Some((14, 36)));
        check(&[2], Some((1, 8)));
        check(&[2_999, 5], Some((1, 1_000)));
        check(&[2_999], Some((2_993, 3_000)));
        check(&[4_000], None);
        check(&[u32::MAX], None);
        check(&[0], None);
    }
}
