//! `tickwalk experiment` runs on JVMs without a compiler and reports the expected results.

use std::path::{Path, PathBuf};
use std::process::Command;

use java_tests::{
    Finished, INTERVAL_NS, Jdk, Workload, binaries, javac, on_jdks, span_tolerance_ns, tickwalk,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

fn experiment(jdk: &Jdk, arguments: &[&str]) -> Finished {
    let (java, agent) = (jdk.home.display().to_string(), binaries::agent().display().to_string());
    tickwalk(&[&["experiment"], arguments, &["--java", &java, "--agent", &agent]].concat())
}

/// Returns the CPU time of all ended child processes in milliseconds.
fn children_cpu_ms() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage");
    [usage.user_time(), usage.system_time()].iter().map(|time| time.num_microseconds() as f64 / 1000.0).sum()
}

/// Returns the elements of a page after its scripts ran; `None` where there is no Chromium.
/// `TICKWALK_REQUIRE_CHROMIUM=1` makes that a failure.
fn in_a_browser(page: &Path) -> Option<String> {
    let program = std::env::var("TICKWALK_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let profile = tempfile::tempdir().expect("temporary directory");
    let browser = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output();
    match browser {
        Ok(output) => Some(String::from_utf8(output.stdout).expect("a page in UTF-8")),
        Err(error) => {
            let is_required = std::env::var_os("TICKWALK_REQUIRE_CHROMIUM").is_some_and(|value| value == "1");
            assert!(!is_required, "no Chromium: {error}; install it, or name it in TICKWALK_CHROMIUM");
            eprintln!("SKIPPED: no Chromium, the page of the experiment is not tested");
            None
        }
    }
}

/// Parses the lines of a CSV file into pairs of column name and value.
fn cells(csv: &str) -> Vec<Vec<(&str, &str)>> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    lines.map(|line| header.iter().copied().zip(line).collect()).collect()
}

/// Columns with the prefix of a cause that are none: a share, a part of `lost_queue_full`, and losses of handlers that
/// began while the session ended.
const NOT_LOST_WHILE_RUNNING: [&str; 3] = ["lost_share", "lost_after_growth", "lost_stopping"];

fn column<'a>(cell: &[(&str, &'a str)], name: &str) -> &'a str {
    cell.iter().find(|(column, _)| *column == name).unwrap_or_else(|| panic!("{name} in {cell:?}")).1
}

on_jdks! { 17, 25;
    /// One corner of the grid with every setting. With the default settings and one thread per processor nothing is
    /// lost. Queues that lost samples to late drains have grown, unless their size is fixed. Scheduling delays of the
    /// machine make drains late as well.
    fn queue_experiment(jdk) {
        let folder = tempfile::tempdir().expect("temporary directory");
        let output = folder.path().to_str().expect("a plain path");
        let run = experiment(jdk, &["queue", "--quick", "--only", "Java, depth 1200, 1 ms", "-o", output]);
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        let csv = std::fs::read_to_string(folder.path().join("cells.csv")).expect("cells.csv");
        let cells = cells(&csv);
        assert_eq!(cells.len(), 8, "{csv}");
        let fewest = column(&cells[0], "threads");
        for cell in &cells {
            let number = |name| column(cell, name).parse::<f64>().expect(name);
            assert!(number("samples") > 0.0 && number("drain_requests_count") > 0.0, "{cell:?}");
            // The table has a column for each cause that occurred in any cell.
            let lost = cell.iter().filter(|(name, count)| {
                name.starts_with("lost_") && !NOT_LOST_WHILE_RUNNING.contains(name) && *count != "0"
            });
            let lost: Vec<&str> = lost.map(|(name, _)| *name).collect();
            let grown = number("grown");
            match (column(cell, "queues"), column(cell, "drain")) {
                ("shipped", "shipped") if column(cell, "threads") == fewest => {
                    assert!(lost.is_empty() || run.starvation.allowed_loss_ns() > 0, "{cell:?}, {:?}", run.starvation);
                }
                ("shipped", _) => assert_eq!(lost.contains(&"lost_queue_full"), grown > 0.0, "{cell:?}"),
                (queues, _) if queues.starts_with("fixed") => assert_eq!(grown, 0.0, "{cell:?}"),
                _ => {}
            }
        }
        for file in ["index.html", "cells.json"] {
            let text = std::fs::read_to_string(folder.path().join(file)).expect(file);
            assert!(text.contains("fixed 16, drain every 100 ms"), "{file}");
        }
        let Some(page) = in_a_browser(&folder.path().join("index.html")) else { return };
        // Behind the script stands what it drew: four charts, and a table with a row for each cell.
        let page = page.rsplit("</script>").next().expect("what the script drew");
        assert_eq!(page.matches("<svg").count(), 4, "{page}");
        let every_cell = page.split("<details>").nth(1).expect("the table of every cell");
        assert_eq!(every_cell.matches("<tr>").count(), 1 + cells.len(), "{page}");
        assert!(page.contains("With the shipped settings, "), "{page}");
    }
}

on_jdks! { 17, 25;
    /// A thread that does one thing has a profile that is off by at most an interval at either end. The account of the
    /// JVM equals the CPU time that the kernel reports to its parent, except for the time before the agent starts and
    /// after it ends.
    fn waste_experiment(jdk) {
        let run = experiment(jdk, &["waste", "--milliseconds", "1000"]);
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        let error = |way: &str| {
            let line = run.stdout.lines().find(|line| line.split(' ').next() == Some(way));
            let words: Vec<&str> = line.unwrap_or_else(|| panic!("{way}: {}", run.stdout)).split_whitespace().collect();
            words[words.len() - 2].parse::<f64>().expect("an error in percent")
        };
        for way in ["spin", "allocate", "compress", "system", "naps", "throwing"] {
            let percent = span_tolerance_ns(INTERVAL_NS) as f64 / 1e9 * 100.0;
            assert!(error(way).abs() <= percent, "{way}:\n{}", run.stdout);
        }
        let account = run.stdout.lines().last().expect("the whole JVM");
        let share = account.split_once("by the account (").and_then(|(_, rest)| rest.split_once(" %"));
        let share: f64 = share.expect(account).0.parse().expect(account);
        let whole = account.split_once("whole JVM: ").and_then(|(_, rest)| rest.split_once(" ms by getrusage"));
        let whole_ms: f64 = whole.expect(account).0.parse().expect(account);
        // The time before and after the agent is part of the CPU time of a program that does nothing.
        let begun_ms = children_cpu_ms();
        assert_eq!(Workload::new("Hello").run_unprofiled(jdk).exit_code(), 0);
        let empty_ms = children_cpu_ms() - begun_ms;
        let missing_ms = share.abs() / 100.0 * whole_ms;
        assert!(missing_ms <= 2.0 * empty_ms + whole_ms / 100.0, "{account}; an empty program takes {empty_ms} ms");
    }
}

/// The embedded class file is the compiled form of the source beside it.
#[test]
fn the_embedded_class_is_up_to_date() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/src/experiment/workload");
    let scratch = tempfile::tempdir().expect("temporary directory");
    let options = ["--release", "11", "-g:source,lines", "-d"];
    let mut compiler = Command::new(javac());
    compiler.args(options).arg(scratch.path()).arg(folder.join("TickwalkExperiment.java"));
    let output = compiler.output().expect("javac starts (run java-tests/fetch)");
    assert!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
    let read = |folder: &Path| std::fs::read(folder.join("TickwalkExperiment.class")).expect("a class file");
    assert!(
        read(&folder) == read(scratch.path()),
        "TickwalkExperiment.class is out of date: in {} run javac {} . TickwalkExperiment.java",
        folder.display(),
        options.join(" ")
    );
}
