//! Measures reading of a lake with a month of 1,000 JVMs in 50 services.
//!
//! ```text
//! cargo run -p lake --example month -- DIRECTORY
//! ```
//!
//! One hour of one service is generated: 20 JVMs that use a quarter of a processor each, at an interval of 10 ms. All
//! other hours and services are hard links of its files, so sizes are real, and the disk has them once.

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lake::layout::{Folder, Table};
use lake::read::{Limits, Selected};
use lake::storage::{Lake, LakeUrl};
use lake::table::accounts::{Account, write_accounts};
use lake::table::samples::{SampleRow, Samples};
use lake::table::stacks::{Frame, Stack, Stacks};
use profile::api::question;
use profile::session::Session;
use profile::source::Wanted;
use proto::v1::Hello;

const SERVICES: i64 = 50;
const HOURS: i64 = 30 * 24;
const JVMS: i64 = 20;
/// Samples of a service in an hour: 25 a second of each JVM.
const SAMPLES: i64 = JVMS * 25 * 3600;
const STACKS: i64 = 20_000;
const FRAMES: i64 = 40;
const METHODS: i64 = 5_000;

/// 2026-11-13, 00:00 UTC.
const FIRST_HOUR: i64 = 498_480;
/// The generated hour, in the middle of the month.
const HOUR: i64 = FIRST_HOUR + HOURS / 2;
const HOUR_US: i64 = 3_600_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let directory: PathBuf = std::env::args_os().nth(1).ok_or("name a directory")?.into();
    let begin = Instant::now();
    let bytes = if directory.exists() { 0 } else { generate(&directory)? };
    println!("generated in {:.1?}, {} MB for each hour of a service", begin.elapsed(), bytes >> 20);
    let url: LakeUrl = format!("file://{}", directory.canonicalize()?.display()).parse()?;
    let lake = Lake::open(&url)?;
    let begin = Instant::now();
    let (mut files, mut bytes) = (0, 0);
    for service in lake.run(lake.services())? {
        for entry in lake.run(lake.files(&service))? {
            (files, bytes) = (files + 1, bytes + entry.len);
        }
    }
    println!("list all of it: {:.1?}, {files} files with {} GB", begin.elapsed(), bytes >> 30);
    let hour_s = u64::try_from(HOUR)? * 3600;
    let shop = ["shop0".to_owned()];
    ask(&lake, "processes", &[], seconds(hour_s..hour_s + 3599))?;
    ask(&lake, "methods", &shop, seconds(hour_s..hour_s + 3599))?;
    ask(&lake, "flamegraph", &shop, seconds(hour_s + 1800..hour_s + 2099))?;
    ask(&lake, "methods", &shop, seconds(hour_s - 200 * 3600..hour_s))?;
    Ok(())
}

fn seconds(range: Range<u64>) -> Range<u64> {
    range.start * 1_000_000_000..range.end * 1_000_000_000
}

/// Prints how long an answer takes and what is read for it.
fn ask(lake: &Lake, name: &str, processes: &[String], range_ns: Range<u64>) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let wanted = Wanted {
        ranges_ns: std::slice::from_ref(&range_ns),
        processes,
        sessions: Some(&|_, session| processes.is_empty() || processes[0] == session.service()),
        has_samples: name != "processes",
        is_over: &|| false,
    };
    let title = format!(
        "{name} of {} for {} s",
        processes.first().map_or("all services", String::as_str),
        (range_ns.end - range_ns.start) / 1_000_000_000
    );
    let selected = match Selected::read(lake, &wanted, Limits::default(), &|_| {}) {
        Ok(selected) => selected,
        Err(error) => {
            println!("{title}: refused after {:.2?}: {error}", begin.elapsed());
            return Ok(());
        }
    };
    let read = begin.elapsed();
    let moment = |ns: u64| (ns / 1_000_000_000).to_string();
    let pairs = [("from".to_owned(), moment(range_ns.start)), ("to".to_owned(), moment(range_ns.end))];
    let answer = question::answer(&selected, name, &pairs, range_ns.end)?;
    let progress = selected.progress;
    println!(
        "{title}: {:.2?}, of which reading {read:.2?}: {} requests, {:.1} MB of {} files; answer of {} kB",
        begin.elapsed(),
        progress.requests,
        progress.bytes as f64 / (1 << 20) as f64,
        progress.files,
        answer.bytes.len() >> 10
    );
    Ok(())
}

/// Makes the lake, and returns the bytes of one of its folders.
fn generate(directory: &Path) -> Result<u64, Box<dyn Error>> {
    let model = directory.join(Folder::of("shop0", HOUR * HOUR_US).to_string());
    std::fs::create_dir_all(&model)?;
    let mut bytes = 0;
    for (table, content) in
        [(Table::Stacks, stacks()?), (Table::Accounts, accounts()?), (Table::Samples, samples()?)]
    {
        bytes += content.len() as u64;
        std::fs::write(model.join(table.compacted(1)), content)?;
    }
    for service in 0..SERVICES {
        for hour in FIRST_HOUR..FIRST_HOUR + HOURS {
            let folder = directory.join(Folder::of(&format!("shop{service}"), hour * HOUR_US).to_string());
            if folder == model {
                continue;
            }
            std::fs::create_dir_all(&folder)?;
            for table in Table::ALL {
                std::fs::hard_link(model.join(table.compacted(1)), folder.join(table.compacted(1)))?;
            }
        }
    }
    Ok(bytes)
}

/// A number without a pattern.
fn scattered(number: i64) -> i64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x1e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x3f58_476d_1ce4_e5b9)
}

fn stacks() -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stacks = Stacks::default();
    let mut text = |text: String| stacks.texts.number(text.as_bytes());
    let (stop, kind) = (text("end_of_stack".into()), text("c2".into()));
    for method in 0..METHODS {
        let class = format!("com.example.shop.module{}.Component{}", method / 100, method / 10);
        let name = format!("operation{}", scattered(method).rem_euclid(1000));
        let frame = Frame {
            name: text(format!("{}.{name}", class.rsplit('.').next().unwrap_or(""))),
            file: text(format!("{}.java", class.replace('.', "/"))),
            class: text(class),
            method: text(name),
            kind,
            line: (method % 500) as i32,
            signature: text("(Ljava/lang/Object;I)V".into()),
            ..Frame::default()
        };
        stacks.frames.push(frame);
    }
    for stack in 0..STACKS {
        // Stacks share their roots.
        let frames = (0..FRAMES).map(|depth| scattered(depth * 7 + (stack >> depth.min(14))));
        let frames = frames.map(|frame| frame.rem_euclid(METHODS) as u32).collect();
        stacks.rows.insert(scattered(stack), Stack { stop, frames });
    }
    let mut out = Vec::new();
    stacks.write(|_| true, &mut out)?;
    Ok(out)
}

fn accounts() -> Result<Vec<u8>, Box<dyn Error>> {
    let account = |id: i64| {
        let mut session = Session::default();
        let pid = u32::try_from(1000 + id).unwrap_or(0);
        session.introduce(Hello {
            session_id: (id + 1).cast_unsigned(),
            service: "shop0".into(),
            host: format!("node{id}"),
            pid,
            command: "java -jar shop.jar".into(),
            wall_clock_ns: (FIRST_HOUR * HOUR_US * 1000).cast_unsigned(),
            ..Hello::default()
        });
        session.last_ns = ((FIRST_HOUR + HOURS) * HOUR_US * 1000).cast_unsigned();
        Account::of((id + 1).cast_unsigned(), 1, &session)
    };
    let mut out = Vec::new();
    write_accounts(&(0..JVMS).map(account).collect::<Vec<_>>(), &mut out)?;
    Ok(out)
}

fn samples() -> Result<Vec<u8>, Box<dyn Error>> {
    let mut samples = Samples::default();
    let mut text = |text: String| samples.texts.number(text.as_bytes());
    let (stop, kind, labels) = (text("end_of_stack".into()), text("java".into()), text("version=2".into()));
    let sessions: Vec<u32> = (0..JVMS).map(|id| text(format!("{:016x}", id + 1))).collect();
    let hosts: Vec<u32> = (0..JVMS).map(|id| text(format!("node{id}"))).collect();
    let threads: Vec<u32> = (0..64).map(|thread| text(format!("worker-{thread}"))).collect();
    for at in 0..SAMPLES {
        let (jvm, random) = ((at % JVMS) as usize, scattered(at));
        let thread = random.rem_euclid(64);
        // A tenth of the stacks has most of the samples.
        let most = if random & 7 == 0 { STACKS } else { STACKS / 10 };
        samples.rows.push(SampleRow {
            time_us: HOUR * HOUR_US + at * HOUR_US / SAMPLES,
            cpu_ns: 10_000_000 + random.rem_euclid(1000) * 100,
            samples: 1,
            stack: scattered((random >> 8).rem_euclid(most)),
            stop,
            host: hosts[jvm],
            process: 1000 + jvm as i64,
            thread: threads[thread as usize],
            thread_kind: kind,
            thread_id: 2000 + thread,
            labels,
            session: sessions[jvm],
            sequence: at / JVMS / 25,
            row: (at / JVMS % 25) as i32,
            thread_number: thread as i32 + 1,
            ..SampleRow::default()
        });
    }
    samples.settle();
    let mut out = Vec::new();
    samples.write(&mut out)?;
    Ok(out)
}
