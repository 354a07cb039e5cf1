//! redb against SQLite on what the store writes and reads: the same bytes, in turns.
//!
//! ```text
//! cargo run --release --manifest-path collector/benches/engines/Cargo.toml [-- RECORDING...]
//!     [AGENTS=100 BUSY=16 MINUTES=20 ROUNDS=9]
//! ```
//!
//! `BUSY` is how many times as fast the recordings are replayed: a process with that many busy processors.
//! Files are made below the current folder, which should lie on the disk that matters. The recordings of
//! `collector/tests/recordings/` are replayed if none is named. CPU time is that of the process, bytes written are those
//! that it sent towards the disk (`write_bytes` of `/proc/self/io`, pages written twice count twice). Ends with an error
//! if the engines do not give back the same bytes.

#![allow(missing_docs, reason = "a program, not a library")]
#![forbid(unsafe_code)]

mod engine;
mod load;
mod of_redb;
mod of_sqlite;

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::{Candidate, Engine};
use load::{Load, Table};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use xxhash_rust::xxh3::xxh3_64;

const CANDIDATES: [Candidate; 4] = [
    Candidate { name: "redb", open: of_redb::open },
    Candidate { name: "sqlite", open: of_sqlite::open },
    Candidate { name: "sqlite 16K pages", open: of_sqlite::open_long_pages },
    Candidate { name: "sqlite no rowid", open: of_sqlite::open_clustered },
];

/// What one round of one engine cost, in the order of [`FIGURES`].
type Figures = Vec<f64>;

const FIGURES: [&str; 15] = [
    "journal commits, CPU s",
    "journal commits, wall s",
    "folds and sums, CPU s",
    "folds and sums, wall s",
    "slowest commit, ms",
    "MB written",
    "MB of the files",
    "open and load, CPU ms",
    "open and load, wall ms",
    "read by level and time, CPU ms",
    "read by level and time, wall ms",
    "read one session at a time, CPU ms",
    "samples removed, CPU ms",
    "samples removed, wall ms",
    "MB of the files after that",
];

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("own usage");
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(microseconds as u64)
}

/// CPU and wall clock time of `work`, in seconds.
fn timed<R>(work: impl FnOnce() -> R) -> (f64, f64, R) {
    let (began, cpu_began) = (Instant::now(), cpu());
    let result = work();
    ((cpu() - cpu_began).as_secs_f64(), began.elapsed().as_secs_f64(), result)
}

fn bytes_written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Bytes of all files in a folder: SQLite's log beside the database counts.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
}

/// What a partition keeps in memory, read when it is opened (`partition/load.rs`).
fn load_memory(engine: &dyn Engine, visit: &mut dyn FnMut(&[u8])) {
    let tables = [Table::Dictionary, Table::Sessions, Table::Threads, Table::Numbers, Table::Journal];
    for table in tables {
        engine.read(table, &[], 0..u64::MAX, None, visit);
    }
}

/// Flame graphs of five minutes, of all, of an hour's sums; a heat map; threads; the minutes that ranges cut.
fn read_by_time(engine: &dyn Engine, load: &Load, visit: &mut dyn FnMut(&[u8])) {
    let end_s = load.first_s + load.minutes * 60;
    for from_s in (load.first_s..end_s).step_by(300) {
        engine.read(Table::Stacks, &[0], from_s..from_s + 300, None, visit);
    }
    for table in [Table::Stacks, Table::ThreadStacks, Table::Times] {
        engine.read(table, &[0], load.first_s..end_s, None, visit);
        engine.read(table, &[1], 0..u64::MAX, None, visit);
    }
    for from_s in (load.first_s..end_s).step_by(60) {
        engine.read(Table::Raw, &[], from_s..from_s + 1, None, visit);
    }
}

/// The questions of a page about one process, for each.
fn read_by_session(engine: &dyn Engine, load: &Load, visit: &mut dyn FnMut(&[u8])) {
    let end_s = load.first_s + load.minutes * 60;
    for &session in &load.sessions {
        engine.read(Table::Sessions, &[], session..session + 1, None, visit);
        engine.read(Table::Threads, &[session], 0..u64::MAX, None, visit);
        engine.read(Table::Stacks, &[0], load.first_s..end_s, Some(session), visit);
        engine.read(Table::Times, &[0], load.first_s..end_s, Some(session), visit);
    }
}

/// One round; figures, and a hash over everything that was read.
fn run(candidate: &Candidate, load: &Load) -> (Figures, u64) {
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let path = folder.path().join("database");
    let written = bytes_written();
    let mut engine = (candidate.open)(&path);
    let (mut journal, mut folds, mut slowest) = ((0.0, 0.0), (0.0, 0.0), 0f64);
    for transaction in &load.transactions {
        let (cpu, wall, ()) = timed(|| engine.write(transaction));
        let is_journal = transaction.rows.iter().all(|row| row.0 == Table::Journal);
        let sum = if is_journal { &mut journal } else { &mut folds };
        *sum = (sum.0 + cpu, sum.1 + wall);
        slowest = slowest.max(wall);
    }
    drop(engine);
    let (written, stored) = (bytes_written() - written, bytes_in(folder.path()));
    let mut hash = 0u64;
    let mut visit = |block: &[u8]| hash = hash.rotate_left(5) ^ xxh3_64(block);
    let (open_cpu, open_wall, mut engine) = timed(|| {
        let engine = (candidate.open)(&path);
        load_memory(&*engine, &mut visit);
        engine
    });
    let (time_cpu, time_wall, ()) = timed(|| read_by_time(&*engine, load, &mut visit));
    let (session_cpu, _, ()) = timed(|| read_by_session(&*engine, load, &mut visit));
    let (lower_cpu, lower_wall, ()) = timed(|| engine.lower());
    engine.read(Table::Stacks, &[0], 0..u64::MAX, None, &mut visit);
    drop(engine);
    let lowered = bytes_in(folder.path());
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let ms = |seconds: f64| seconds * 1e3;
    let figures = vec![
        journal.0,
        journal.1,
        folds.0,
        folds.1,
        ms(slowest),
        mb(written),
        mb(stored),
        ms(open_cpu),
        ms(open_wall),
        ms(time_cpu),
        ms(time_wall),
        ms(session_cpu),
        ms(lower_cpu),
        ms(lower_wall),
        mb(lowered),
    ];
    (figures, hash)
}

fn main() {
    let mut files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings");
        let entries = std::fs::read_dir(folder).expect("recordings");
        files = entries.map(|entry| entry.expect("a file").path()).collect();
        files.sort();
    }
    let (agents, busy) = (number("AGENTS", 100), number("BUSY", 16));
    let (minutes, rounds) = (number("MINUTES", 20), number("ROUNDS", 9));
    let recordings: Vec<_> = files.iter().map(|file| load::recording(file)).collect();
    let load = Load::make(&recordings, agents as usize, busy, minutes);
    let rows = |table| load.transactions.iter().flat_map(|one| &one.rows).filter(move |row| row.0 == table);
    println!(
        "{agents} agents with {busy} processors each, {} sessions, {minutes} minutes, {} transactions, redb 4, SQLite {}; medians of {rounds} \
         rounds (least to most)",
        load.sessions.len(),
        load.transactions.len(),
        rusqlite::version()
    );
    for table in Table::ALL {
        let mut lengths: Vec<usize> = rows(table).map(|row| row.2.len()).collect();
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        let (most, sum) = (lengths.last().copied().unwrap_or(0), lengths.iter().sum::<usize>());
        println!(
            "{:<14} {:>6} rows, {median:>6} bytes median, {most:>7} most, {sum:>9} in all",
            table.name(),
            lengths.len()
        );
    }
    let mut results: Vec<Vec<Figures>> = CANDIDATES.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds as usize {
        let mut hashes = Vec::new();
        // Each begins a round as often as the others, so that none always follows the same one.
        for turn in 0..CANDIDATES.len() {
            let index = (turn + round) % CANDIDATES.len();
            let (figures, hash) = run(&CANDIDATES[index], &load);
            results[index].push(figures);
            hashes.push(hash);
        }
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "the engines gave back different bytes");
    }
    print!("\n| |");
    CANDIDATES.iter().for_each(|candidate| print!(" {} |", candidate.name));
    println!("\n|---|{}", "---|".repeat(CANDIDATES.len()));
    for (index, figure) in FIGURES.iter().enumerate() {
        print!("| {figure} |");
        for rounds in &results {
            let mut values: Vec<f64> = rounds.iter().map(|figures| figures[index]).collect();
            values.sort_unstable_by(f64::total_cmp);
            let digits = if values[values.len() / 2] < 10.0 { 2 } else { 1 };
            let (least, most) = (values[0], values[values.len() - 1]);
            print!(" {:.digits$} ({least:.digits$} to {most:.digits$}) |", values[values.len() / 2]);
        }
        println!();
    }
}
