//! The command that lets an engine answer what is too much for one machine's memory.

use profile::source::Wanted;

use super::times::Times;
use crate::storage::Lake;

/// Returns a command of DuckDB for the hot methods of the first selected service.
pub fn command(lake: &Lake, wanted: &Wanted<'_>, times: &Times) -> String {
    let service = wanted.processes.first().map_or("SERVICE", String::as_str).replace('\'', "''");
    let url = lake.to_string();
    let place = url.strip_prefix("file://").unwrap_or(&url);
    let span = times.span_us();
    // An open end is written as a time that engines can represent.
    let moment = |us: i64| match us / 1_000_000 {
        seconds @ 0..4_000_000_000 => format!("to_timestamp({seconds})"),
        _ => "now()".to_owned(),
    };
    format!(
        "duckdb -cmd \"SET VARIABLE lake = '{place}'\" -cmd '.read collector/lake/sql/duckdb.sql' \
         -c \"FROM hot_methods('{service}', {}, {}) ORDER BY self_ns DESC LIMIT 20\"",
        moment(span.start),
        moment(span.end)
    )
}
