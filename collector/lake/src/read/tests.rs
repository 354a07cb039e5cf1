//! Reading parts of large files.

use std::sync::LazyLock;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use proto::v1::Hello;

use super::*;
use crate::layout::Folder;
use crate::table::accounts::{Account, write_accounts};
use crate::table::samples::SampleRow;
use crate::table::stacks::{Frame, Stack};

/// 2026-11-29, 04:00 UTC.
const HOUR_US: i64 = 1_795_924_800_000_000;

/// A full row group of samples, of 48 minutes, and a quarter of one.
const SAMPLES: i64 = (1 << 17) + (1 << 15);

/// Four full row groups of stacks.
const STACKS: i64 = 4 << 13;

/// Seconds after the hour, as a range of nanoseconds.
fn seconds(range: Range<u64>) -> Range<u64> {
    let ns = |seconds: u64| HOUR_US.cast_unsigned() * 1000 + seconds * 1_000_000_000;
    ns(range.start)..ns(range.end)
}

/// The files of one compacted hour of `shop`: sessions 1 and 2 alternate, and the last sample is the only one of
/// session 3, with a stack of its own.
static FILES: LazyLock<[(Table, Bytes); 3]> = LazyLock::new(|| {
    let (mut samples, mut stacks) = (Samples::default(), Stacks::default());
    let mut text = |text: &str| samples.texts.number(text.as_bytes());
    let (stop, thread, kind) = (text("end_of_stack"), text("main"), text("java"));
    let sessions = [1, 2, 3].map(|id| text(&format!("{id:016x}")));
    for at in 0..SAMPLES {
        let is_last = at == SAMPLES - 1;
        samples.rows.push(SampleRow {
            time_us: HOUR_US + at * 3_600_000_000 / SAMPLES,
            cpu_ns: 1_000_000 + at,
            samples: 1,
            stack: if is_last { STACKS - 1 } else { at * 7919 % (STACKS - 1) },
            stop,
            thread,
            thread_kind: kind,
            session: sessions[if is_last { 2 } else { (at % 2) as usize }],
            sequence: at,
            ..SampleRow::default()
        });
    }
    samples.settle();
    let [whole, frame_kind] = ["end_of_stack", "c2"].map(|text| stacks.texts.number(text.as_bytes()));
    for id in 0..STACKS {
        // Names that do not compress.
        let mut state = id + 1;
        let letters = (0..50).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (state >> 40).rem_euclid(26) as u8)
        });
        let name = stacks.texts.number(letters.collect::<String>().as_bytes());
        stacks.frames.push(Frame { name, class: name, method: name, kind: frame_kind, ..Frame::default() });
        stacks.rows.insert(id, Stack { stop: whole, frames: vec![id as u32] });
    }
    let accounts = [1, 2, 3].map(|id| {
        let mut session = Session::default();
        session.introduce(Hello { session_id: id, service: "shop".into(), ..Hello::default() });
        Account::of(id, 1, &session)
    });
    let (mut of_samples, mut of_stacks, mut of_accounts) = (Vec::new(), Vec::new(), Vec::new());
    samples.write(&mut of_samples).expect("a file");
    stacks.write(|_| true, &mut of_stacks).expect("a file");
    write_accounts(&accounts, &mut of_accounts).expect("a file");
    assert!(of_samples.len() > 2 << 20 && of_stacks.len() > 1 << 20);
    let files = [(Table::Samples, of_samples), (Table::Stacks, of_stacks), (Table::Accounts, of_accounts)];
    files.map(|(table, bytes)| (table, bytes.into()))
});

/// A lake with [`FILES`].
fn lake() -> Lake {
    let lake = Lake::of(Arc::new(InMemory::new()), Path::from("some/prefix"), "s3://profiles".into())
        .expect("a runtime");
    let folder = Folder::of("shop", HOUR_US);
    for (table, bytes) in &*FILES {
        lake.put(&format!("{folder}/{}", table.compacted(7)), bytes.clone()).expect("memory");
    }
    lake
}

fn all(ranges_ns: &[Range<u64>]) -> Wanted<'_> {
    Wanted { ranges_ns, processes: &[], sessions: None, has_samples: true, is_over: &|| false }
}

fn read(lake: &Lake, wanted: &Wanted<'_>) -> Selected {
    Selected::read(lake, wanted, Limits::default(), &|_| {}).expect("a lake that works")
}

/// Number of samples and their CPU time.
fn sums(selected: &Selected) -> (usize, u64) {
    (selected.samples.len(), selected.all().map(|sample| sample.cpu_ns).sum())
}

#[test]
fn a_short_time_of_a_large_file_is_read_without_the_other_row_groups() {
    let lake = lake();
    let whole = read(&lake, &all(&[seconds(0..3600)]));
    let expected: i64 = (0..SAMPLES).map(|at| 1_000_000 + at).sum();
    assert_eq!(sums(&whole), (SAMPLES as usize, expected.cast_unsigned()));
    assert_eq!((whole.doubled, whole.progress.files), (0, 3));
    // A minute of the last row group.
    let minute = read(&lake, &all(&[seconds(3000..3001)]));
    assert_eq!(minute.samples.len(), samples_of_minute(50));
    assert!(minute.progress.bytes + (1 << 20) < whole.progress.bytes, "{:?}", minute.progress);
    // Two minutes of different row groups, as a comparison has them.
    let both = read(&lake, &all(&[seconds(0..59), seconds(3000..3001)]));
    assert_eq!(both.samples.len(), samples_of_minute(0) + samples_of_minute(50));
    // One session, whose sample has a stack of the last row group.
    let end = [seconds(3540..3600)];
    let last = read(&lake, &Wanted { sessions: Some(&|id, _| id == 3), ..all(&end) });
    assert_eq!(sums(&last), (1, (1_000_000 + SAMPLES - 1).cast_unsigned()));
    let stacks = |selected: &Selected| selected.all().map(|sample| sample.stack).collect::<FxHashSet<u32>>();
    assert_eq!((stacks(&minute).len(), stacks(&last).contains(&0)), (samples_of_minute(50), false));
    assert_eq!(last.sessions.len(), 1);
    assert!(last.progress.bytes + (1 << 20) < minute.progress.bytes, "{:?}", last.progress);
    // A question about processes reads no samples.
    let processes = read(&lake, &Wanted { has_samples: false, ..all(&[seconds(0..3600)]) });
    assert_eq!((processes.sessions.len(), processes.samples.len(), processes.progress.files), (3, 0, 1));
}

fn samples_of_minute(minute: i64) -> usize {
    let own = minute * 60_000_000..(minute + 1) * 60_000_000;
    (0..SAMPLES).filter(|at| own.contains(&(at * 3_600_000_000 / SAMPLES))).count()
}

#[test]
fn a_selection_that_is_too_large_is_refused_with_a_query_for_an_engine() {
    let lake = lake();
    let ranges = [seconds(0..3600)];
    let processes = ["shop".to_owned()];
    let wanted = Wanted { processes: &processes, ..all(&ranges) };
    for (limits, size) in [
        (Limits { samples: 1000, ..Limits::default() }, "more than 1,000 samples"),
        (Limits { bytes: 1 << 20, ..Limits::default() }, "files of "),
    ] {
        let refused = Selected::read(&lake, &wanted, limits, &|_| {});
        let text = refused.map(drop).expect_err("too large").to_string();
        assert!(text.starts_with(&format!("the selection has {size}")), "{text}");
        let query = "FROM hot_methods('shop', to_timestamp(1795924800), to_timestamp(1795928460))";
        assert!(text.contains(query) && text.contains("lake sql duckdb \"s3://profiles\""), "{text}");
        assert!(!text.contains('\n'));
    }
}

#[test]
fn reading_ends_at_its_deadline() {
    let ranges = [seconds(0..3600)];
    let wanted = Wanted { is_over: &|| true, ..all(&ranges) };
    let ended = Selected::read(&lake(), &wanted, Limits::default(), &|_| {});
    assert!(matches!(ended, Err(LakeError::Late)), "{ended:?}");
}
