//! The queue study as an HTML page and as SVG pictures. Writing to a String cannot fail.

use std::fmt::Write as _;

use super::chart::{Chart, Dot};
use super::queue::{Row, Study};
use profile::text::quantity;
use profile::ui::standalone::escape_html as escape;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;\
max-width:1000px;padding:1.5rem;background:#fff;color:#1d2430}h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;\
margin:2rem 0 .5rem}p{max-width:75ch}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;\
font-size:13px}th,td{padding:.3rem .5rem;text-align:right;border-bottom:1px solid #d8dde4}th:first-child,\
td:first-child{text-align:left}thead th{font-weight:600;vertical-align:bottom}.none{color:#1d7a3e}.some{color:#b3261e;\
font-weight:600}.scroll{overflow-x:auto}svg{width:100%;height:auto;margin:.5rem 0}.note{color:#5a6472}\
@media(prefers-color-scheme:dark){body{background:#12171e;color:#e4e8ee}th,td{border-color:#333c48}.none{color:#6fd08c}\
.some{color:#ff8a80}.note{color:#9aa5b4}}";

/// Returns the pictures of a study with their file names.
pub fn pictures(study: &Study) -> Vec<(&'static str, String)> {
    let groups = groups(study);
    let draw = |title: &str, value: fn(&Row) -> f64, text: fn(f64) -> String| {
        let dot = |row: &&Row| Dot {
            group: groups.iter().position(|group| *group == row.cell.work.to_string()).unwrap_or(0).min(3),
            value: value(row),
            hover: format!("{}: {}", row.cell, text(value(row))),
        };
        let rows = study.by_settings();
        let rows = rows.iter().map(|(name, rows)| (name.clone(), rows.iter().map(dot).collect())).collect();
        Chart { title, groups: &groups, rows, text }.svg()
    };
    vec![
        (
            "losses",
            draw("Share of CPU time lost, a dot per cell", |row| row.lost_share * 100.0, percent_text),
        ),
        ("memory", draw("Memory of request queues, upper bound", |row| row.queue_bytes as f64, bytes_text)),
        ("drain-sizes", {
            let value = |row: &Row| row.drains.requests.p99 as f64;
            draw("Requests found by a drain, 99th percentile", value, |value| value.to_string())
        }),
        ("drain-times", {
            let value = |row: &Row| row.drains.ns.p99 as f64 / 1e6;
            draw("Time of a drain, 99th percentile", value, |value| format!("{} ms", rounded(value)))
        }),
    ]
}

/// Returns the first four kinds of work in the order of the runs.
fn groups(study: &Study) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for row in &study.rows {
        let work = row.cell.work.to_string();
        if !groups.contains(&work) {
            groups.push(work);
        }
    }
    groups.truncate(4);
    groups
}

/// Returns the page: conditions, results by settings, pictures, and all cells.
pub fn html(study: &Study) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Queue study</title><style>{STYLE}</style><h1>Queue study</h1>\
         <p class=\"note\">{}, kernel tick {}, {} cells{}{}.</p>",
        escape(&study.jvm),
        if study.tick_ns == 0 { "not measured".to_owned() } else { quantity::duration(study.tick_ns) },
        study.rows.len(),
        remark(study.skipped, "skipped at the time limit"),
        remark(study.failed.len(), "failed")
    );
    page.push_str(&verdict(study));
    page.push_str("<h2>By settings</h2>");
    settings_table(&mut page, study);
    page.push_str(
        "<p class=\"note\">Drain sizes and times are those of the worst cell of a row. A thread makes at most one request \
        per tick of the kernel, so small queues last longer than a shorter interval suggests.</p>",
    );
    for (_, svg) in pictures(study) {
        page.push_str(&svg);
    }
    page.push_str("<h2>Every cell</h2>");
    cells_table(&mut page, study);
    for (cell, why) in &study.failed {
        let _ = write!(page, "<p class=\"some\">{}: {}</p>", escape(&cell.to_string()), escape(why));
    }
    page + "</html>\n"
}

fn remark(count: usize, what: &str) -> String {
    if count == 0 { String::new() } else { format!(", {count} {what}") }
}

/// Returns a sentence with the losses of the shipped settings.
fn verdict(study: &Study) -> String {
    let groups = study.by_settings();
    let Some((_, rows)) = groups.iter().find(|(name, _)| name == "shipped") else { return String::new() };
    let (samples, lost) = totals(rows);
    let most = rows.iter().map(|row| row.queue_bytes).max().unwrap_or(0);
    let without_stack: u64 = rows.iter().map(|row| row.without_stack).sum();
    format!(
        "<p>With the shipped settings, {} cells recorded {} samples and lost <span class=\"{}\">{}</span>{}; \
         request queues took {} at most.</p>",
        rows.len(),
        quantity::count(samples),
        class(lost),
        quantity::count(lost),
        match without_stack {
            0 => String::new(),
            some => format!(
                ", {} have no stack because the memory for stack copies was exhausted",
                quantity::count(some)
            ),
        },
        bytes_text(most as f64)
    )
}

fn totals(rows: &[&Row]) -> (u64, u64) {
    rows.iter().fold((0, 0), |(samples, lost), row| (samples + row.samples, lost + row.lost_samples()))
}

fn class(lost: u64) -> &'static str {
    if lost == 0 { "none" } else { "some" }
}

fn settings_table(page: &mut String, study: &Study) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>Settings<th>Cells<th>Samples<th>Lost<th>Cells with \
         losses<th>Worst share<th>Largest queue<th>Queue memory<th>Drain size p99<th>Drain time p99</thead>",
    );
    for (name, rows) in study.by_settings() {
        let (samples, lost) = totals(&rows);
        let most = |value: fn(&Row) -> u64| rows.iter().map(|row| value(row)).max().unwrap_or(0);
        let worst = rows.iter().map(|row| row.lost_share).fold(0.0, f64::max);
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td class=\"{}\">{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(&name),
            rows.len(),
            quantity::count(samples),
            class(lost),
            quantity::count(lost),
            rows.iter().filter(|row| row.lost_samples() > 0).count(),
            quantity::percent(worst),
            most(|row| row.largest),
            bytes_text(most(|row| row.queue_bytes) as f64),
            most(|row| row.drains.requests.p99),
            quantity::duration(most(|row| row.drains.ns.p99))
        );
    }
    page.push_str("</table></div>");
}

fn cells_table(page: &mut String, study: &Study) {
    page.push_str(
        "<details><summary>Show the table</summary><div class=\"scroll\"><table><thead><tr><th>Cell<th>CPU time \
         per call<th>Samples<th>Lost, by cause<th>Without stack<th>Largest queue<th>Queues<th>Stack copies<th>Drain size \
         p50 / p95 / p99 / max<th>Drain time p50 / p95 / p99 / max, ms</thead>",
    );
    for row in &study.rows {
        let lost: Vec<String> = row.lost.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let sizes = row.drains.requests;
        let times = row.drains.ns;
        let times = [times.p50, times.p95, times.p99, times.max].map(|ns| rounded(ns as f64 / 1e6));
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td class=\"{}\">{}<td>{}<td>{}<td>{}<td>{}<td>{} / {} / {} / {}<td>{}",
            escape(&row.cell.to_string()),
            quantity::duration(row.call_ns),
            quantity::count(row.samples),
            class(row.lost_samples()),
            if lost.is_empty() { "0".to_owned() } else { escape(&lost.join(", ")) },
            quantity::count(row.without_stack),
            row.largest,
            bytes_text(row.queue_bytes as f64),
            bytes_text(row.pool_bytes as f64),
            sizes.p50,
            sizes.p95,
            sizes.p99,
            sizes.max,
            times.join(" / ")
        );
    }
    page.push_str("</table></div></details>");
}

fn percent_text(value: f64) -> String {
    format!("{} %", rounded(value))
}

/// Formats bytes in B, kB or MB; the units are decimal like the axis.
fn bytes_text(value: f64) -> String {
    match value {
        1e6.. => format!("{} MB", rounded(value / 1e6)),
        1e3.. => format!("{} kB", rounded(value / 1e3)),
        _ => format!("{value} B"),
    }
}

/// Formats a number: no decimals from 10, one from 1, three below 1.
fn rounded(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        10.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::small;
    use super::*;

    #[test]
    fn the_page_says_what_was_lost_and_needs_nothing_from_outside() {
        let page = html(&small());
        assert!(page.contains("Test VM &lt;1&gt;") && page.contains("2 skipped at the time limit"), "{page}");
        assert!(
            page.contains("1 cells recorded 1,000 samples and lost <span class=\"none\">0</span>"),
            "{page}"
        );
        assert!(page.contains("queue_full 30"), "{page}");
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !outside.contains("<script"));
    }

    #[test]
    fn four_pictures_with_a_dot_per_cell() {
        for (name, svg) in pictures(&small()) {
            assert_eq!(svg.matches("<title>").count(), 3, "{name}");
        }
    }

    #[test]
    fn figures_are_short() {
        let texts = [0.0, 0.01, 0.5, 1.0, 1.26, 12.3].map(rounded);
        assert_eq!(texts, ["0", "0.01", "0.5", "1", "1.3", "12"]);
        assert_eq!(bytes_text(96_000.0), "96 kB");
    }
}
