//! A verdict about growth as text and as Markdown.

use super::{Growth, ProgramGrowth, Verdict};
use crate::text::quantity::{count, duration, percent};

/// Standard errors beyond the threshold at which a growth is found in 95 % of the cases.
const POWER: f64 = 1.65;
/// Name of the row of the whole program.
const PROGRAM: &str = "CPU time of the program";

/// Cells of a row: before, after, change, probability, judgement, name.
type Row = [String; 6];

impl Verdict {
    pub fn sentence(&self) -> String {
        let limit = percent_text(self.limit);
        let methods = match self.grown().count() {
            0 => format!("No method has grown by more than {limit}"),
            1 => format!("One method has grown by more than {limit}"),
            grown => format!("{grown} methods have grown by more than {limit}"),
        };
        let program = match &self.program {
            Some(program) if program.has_grown => {
                format!("The program takes {} more CPU time. ", percent_text(program.change))
            }
            _ => String::new(),
        };
        let [before, after] = self.runs;
        let samples = self.samples.map(count);
        let one_in = (1.0 / (1.0 - self.confidence)).round();
        let text = format!(
            "{program}{methods} ({before} and {after} runs, {} and {} samples; of equal programs, at most 1 comparison in \
            {one_in} fails).",
            samples[0], samples[1]
        );
        match self.smallest_visible() {
            Some((name, visible)) if !self.has_failed() => {
                let visible = 100.0 * visible;
                format!("{text}\nOf {name}, {visible:.0} % more would usually be found, less may not be.")
            }
            _ => text,
        }
    }

    /// Returns the growth of a heavy method that these runs would usually show, if it is more than the limit.
    /// Methods that have most of the CPU time, as the roots of threads do, cannot grow much.
    fn smallest_visible(&self) -> Option<(&str, f64)> {
        let with_errors =
            self.methods.iter().filter(|method| method.before_share > 0.0 && method.before_share <= 0.5);
        let heaviest = with_errors.max_by(|a, b| a.before_share.total_cmp(&b.before_share))?;
        let visible = (self.threshold + POWER) * heaviest.standard_error / heaviest.before_share;
        (visible > self.limit).then_some((heaviest.name.as_str(), visible))
    }

    /// Returns a table of the program and at most `limit` methods, the largest growth first, as plain text or
    /// Markdown.
    pub fn table(&self, limit: usize, markdown: bool) -> String {
        let heading = ["before", "after", "change", "chance", "", "method (total time, share of all)"];
        let rows = self.program.iter().map(of_program);
        let rows = rows.chain(self.methods.iter().take(limit).map(|method| of_method(method, markdown)));
        let mut text = line(&heading.map(str::to_owned), markdown);
        if markdown {
            text.push_str("|---|---|---|---|---|---|\n");
        }
        rows.for_each(|row| text.push_str(&line(&row, markdown)));
        text
    }
}

fn line(row: &Row, markdown: bool) -> String {
    let [before, after, change, chance, judged, name] = row;
    match markdown {
        true => format!("| {} |\n", row.join(" | ")),
        false => format!("{before:>8} {after:>8} {change:>18} {chance:>8} {judged:>6}  {name}\n"),
    }
}

fn of_program(program: &ProgramGrowth) -> Row {
    [
        duration(program.before_ns),
        duration(program.after_ns),
        change_text(program.change, program.uncertainty),
        chance_text(program.probability),
        judged_text(program.has_grown),
        PROGRAM.to_owned(),
    ]
}

fn of_method(method: &Growth, markdown: bool) -> Row {
    let change = match (method.change, method.uncertainty) {
        (Some(change), Some(off)) => change_text(change, off),
        _ => "new".to_owned(),
    };
    let name = if markdown { format!("`{}`", method.name.replace('|', "\\|")) } else { method.name.clone() };
    [
        percent(method.before_share),
        percent(method.after_share),
        change,
        chance_text(method.probability),
        judged_text(method.has_grown),
        name,
    ]
}

fn change_text(change: f64, off: f64) -> String {
    format!("{:+.1} % ± {:.1}", 100.0 * change, 100.0 * off)
}

fn chance_text(probability: f64) -> String {
    match probability < 0.001 {
        true => "<0.1 %".to_owned(),
        false => percent_text(probability),
    }
}

fn percent_text(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn judged_text(has_grown: bool) -> String {
    if has_grown { "grown" } else { "" }.to_owned()
}
