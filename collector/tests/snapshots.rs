//! What is made of a small session, compared with files in `tests/golden/`.
//!
//! `TICKWALK_REGENERATE=1 cargo test -p collector snapshots::` rewrites them, to be read before committing.

use std::fs;
use std::path::Path;

use crate::support::small;
use profile::export::Options;
use profile::export::collapsed::{self, Unit};
use profile::export::table::{Report, report};
use profile::export::text::{self, Parts};
use profile::query::selection::Selection;
use profile::query::summary::Summary;

fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TICKWALK_REGENERATE").is_some_and(|value| value == "1") {
        fs::write(&path, actual).expect("write golden file");
    }
    let golden = fs::read_to_string(&path).expect("golden file");
    assert_eq!(actual, golden, "{name} changed");
}

fn collapsed(options: Options) -> String {
    let mut out = Vec::new();
    collapsed::write(&small().profile(), options, &mut out).expect("writing to memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn summary() {
    let summary = Summary::new(&small().profile());
    check("summary.json", &(serde_json::to_string_pretty(&summary).expect("plain data") + "\n"));
}

#[test]
fn hot_methods() {
    let shown = Report { verbose: true, ..Report::of_methods(10) };
    let report = report(&small().recording(), &Selection::default(), shown, 0).expect("a report");
    check("report.txt", &report);
}

#[test]
fn text() {
    let parts = Parts { account: true, stacks: 3, methods: 3, threads: true };
    let mut out = Vec::new();
    text::write(&small().profile(), parts, &mut out).expect("writing to memory");
    check("text.txt", &String::from_utf8(out).expect("text"));
}

#[test]
fn collapsed_stacks() {
    check("collapsed.txt", &collapsed(Options::default()));
    check(
        "collapsed-threads-ns.txt",
        &collapsed(Options { unit: Unit::Nanoseconds, threads: true, ..Options::default() }),
    );
}
