//! Files of a store: damaged and foreign files, remains of killed processes, and concurrent readers.

use std::io;

use rusqlite::Connection;

use super::*;

/// Returns names and contents of all files but the lock.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("a file").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let files = entries.map(|path| (name(&path), fs::read(&path).expect("a file")));
    files.filter(|(name, _)| name != LOCK).collect()
}

fn names(directory: &Path) -> Vec<String> {
    files(directory).into_keys().collect()
}

/// Returns a store with ten samples, their agent, and its stack.
fn ten_samples(directory: &Path) -> (Store, Agent, u32) {
    let store = Store::open(directory, Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let samples = agent.samples(stack, 0, 10);
    append(&store, &agent, &[hello, definitions, samples]).expect("stored");
    (store, agent, stack)
}

fn of_current(store: &Store) -> Arc<Partition> {
    store.shared.current().expect("open")
}

/// Returns the number of minutes in the snapshot of `reading`.
fn minutes(reading: &partition::Reading<'_>) -> usize {
    let mut minutes = 0;
    let everything = 0..u64::MAX;
    let count = |_, _: &[u8]| {
        minutes += 1;
        Ok(())
    };
    let connection = reading.connection().expect("open");
    let level = Some(Level::Minute);
    partition::STACKS.range(connection, level, everything, |_| true, count).expect("readable");
    minutes
}

#[test]
fn a_file_that_is_no_partition_is_refused_and_unchanged() {
    let other = |path: &Path| {
        let other = Connection::open(path).expect("a database");
        other.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES(1)").expect("a table");
    };
    let newer = |path: &Path| {
        let newer = Connection::open(path).expect("a database");
        let tables = "CREATE TABLE meta(name, value); INSERT INTO meta VALUES('schema', 3)";
        newer.execute_batch(tables).expect("a table");
    };
    let text = |path: &Path| fs::write(path, "no database. ".repeat(5000)).expect("a file");
    type Make<'m> = &'m dyn Fn(&Path);
    let cases: [(Make<'_>, StoreError); 3] =
        [(&text, StoreError::Damaged), (&other, StoreError::Damaged), (&newer, StoreError::Version(3))];
    for (make, expected) in cases {
        let directory = tempfile::tempdir().expect("temporary directory");
        make(&directory.path().join("001795219200-000.sqlite"));
        let before = files(directory.path());
        let refused = Store::open(directory.path(), Retention::default()).err();
        assert_eq!(refused, Some(expected));
        assert_eq!(Store::open_for_reading(directory.path()).err(), refused);
        assert!(files(directory.path()) == before, "{expected}");
    }
}

#[test]
fn a_damaged_page_is_an_error_when_it_is_read() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, ..) = ten_samples(directory.path());
    let path = of_current(&store).database.path().to_owned();
    store.close().expect("fold");
    let mut bytes = fs::read(&path).expect("a file");
    // Damages all pages but those of the schema.
    bytes[16 << 10..].fill(0x5a);
    fs::write(&path, bytes).expect("a file");
    assert_eq!(Store::open(directory.path(), Retention::default()).err(), Some(StoreError::Damaged));
    assert_eq!(StoreError::Damaged.to_string(), "a file of the store is damaged or is not a partition");
}

#[test]
fn reading_changes_no_file_even_after_a_kill() {
    let (directory, killed) =
        (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    let (store, ..) = ten_samples(directory.path());
    let before = files(directory.path());
    assert!(before.keys().any(|name| name.ends_with(".sqlite-wal")), "{:?}", before.keys());
    for (name, bytes) in &before {
        fs::write(killed.path().join(name), bytes).expect("a file");
    }
    drop(store);
    let store = Store::open_for_reading(killed.path()).expect("a store");
    assert_eq!(Store::open_for_reading(killed.path()).err(), Some(StoreError::InUse));
    expect(&store, 0..60, &[("leaf", 10)]);
    drop(store);
    assert!(files(killed.path()) == before, "{:?}", names(killed.path()));
    let store = Store::open(killed.path(), Retention::default()).expect("a store");
    expect(&store, 0..60, &[("leaf", 10)]);
    store.close().expect("fold");
    assert!(names(killed.path()).iter().all(|name| name.ends_with(".sqlite")), "{:?}", names(killed.path()));
    let before = files(killed.path());
    let store = Store::open_for_reading(killed.path()).expect("a store");
    expect(&store, 0..60, &[("leaf", 10)]);
    drop(store);
    assert!(files(killed.path()) == before, "{:?}", names(killed.path()));
}

#[test]
fn only_logs_of_removed_partitions_are_removed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    ten_samples(directory.path()).0.close().expect("fold");
    let own = names(directory.path());
    let left = ["1.sqlite-wal", "1.sqlite-journal", "2.new", "2.new-wal", "2.new-journal", "3.trial.new"];
    for name in left.into_iter().chain(["notes-wal", "notes.txt"]) {
        fs::write(directory.path().join(name), b"left").expect("a file");
    }
    Store::open(directory.path(), Retention::default()).expect("a store").close().expect("fold");
    let mut expected = own;
    expected.extend(["notes-wal".into(), "notes.txt".into()]);
    assert_eq!(names(directory.path()), expected);
}

#[test]
fn readers_do_not_block_the_writer() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, mut agent, stack) = ten_samples(directory.path());
    let noise = agent.noise(stack, 1, 20_000);
    append(&store, &agent, &[noise]).expect("stored");
    store.flush().expect("fold");
    let old = of_current(&store);
    let reading = old.database.begin_read().expect("readable");
    assert_eq!(minutes(&reading), 1);
    for minute in 1..20 {
        let samples = agent.samples(stack, minute * 60, 10);
        append(&store, &agent, &[samples]).expect("stored");
        store.flush().expect("fold");
    }
    assert_eq!(minutes(&reading), 1, "the moment it began at");
    let later = old.database.begin_read().expect("readable");
    assert_eq!(minutes(&later), 20);
    // Readers do not block the next partition; the log of the closed one is removed when they have ended.
    let next_s = DAY_NS / NS + 86_400;
    old.coverage.write().created_s = DAY_NS / NS;
    upkeep::run(&store.shared, next_s).expect("upkeep");
    assert_eq!(store.status().partitions, 2);
    let samples = agent.samples(stack, 86_400, 10);
    append(&store, &agent, &[samples]).expect("stored");
    assert_eq!((minutes(&reading), minutes(&later)), (1, 20));
    let log = format!("{}-wal", old.database.path().display());
    assert!(Path::new(&log).exists());
    drop(reading);
    upkeep::run(&store.shared, next_s).expect("upkeep");
    assert!(Path::new(&log).exists(), "one more reads");
    drop(later);
    upkeep::run(&store.shared, next_s).expect("upkeep");
    assert!(!Path::new(&log).exists());
    expect(&store, 0..90_000, &[("leaf", 20_210)]);
    // Resolution is lowered when readers have ended; a file is removed at once.
    let reading = old.database.begin_read().expect("readable");
    let lowered_s = next_s + Retention::default().minutes.as_secs();
    upkeep::run(&store.shared, lowered_s).expect("upkeep");
    assert_eq!((minutes(&reading), old.coverage.read().removed), (20, 0));
    drop(reading);
    let length = old.database.bytes();
    upkeep::run(&store.shared, lowered_s).expect("upkeep");
    assert_eq!(old.coverage.read().removed, 2);
    assert!(old.database.bytes() < length, "{} of {length} bytes", old.database.bytes());
    expect(&store, 0..86_400, &[("leaf", 20_200)]);
    let reading = old.database.begin_read().expect("readable");
    upkeep::run(&store.shared, next_s + Retention::default().age.as_secs()).expect("upkeep");
    assert!(!old.database.path().exists());
    assert_eq!(reading.coverage().expect("readable").removed, 2);
    drop(reading);
    store.close().expect("fold");
    let left = names(directory.path());
    assert!(left.len() == 1 && left[0].ends_with(".sqlite"), "{left:?}");
}

#[test]
fn a_removed_file_is_not_created_again() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, ..) = ten_samples(directory.path());
    let partition = of_current(&store);
    // Existing connections keep the removed file; a new one fails.
    let read = || partition.database.begin_read();
    let readings: Vec<_> = (0..2).map(|_| read().expect("readable")).collect();
    assert_eq!(readings.iter().map(minutes).sum::<usize>(), 0, "nothing is folded yet");
    fs::remove_file(partition.database.path()).expect("removed");
    assert_eq!(read().err(), Some(StoreError::Io(io::ErrorKind::NotFound)));
    assert!(!partition.database.path().exists());
}

#[test]
fn sessions_are_in_the_order_of_unsigned_ids() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let ids = [1, (1 << 63) - 1, 1 << 63, u64::MAX];
    append_a_minute_each(&store, &[(ids[3], DAY_NS), (ids[1], DAY_NS), (ids[2], DAY_NS), (ids[0], DAY_NS)]);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("a store");
    let scope = Scope { range_ns: 0..u64::MAX, sessions: &|_| true };
    let views = store.views();
    let (mut by_sample, mut by_sum) = (Vec::new(), Vec::new());
    views[0].samples(&scope, &mut |sample| by_sample.push(sample.session)).expect("readable");
    views[0].stacks(&scope, &mut |session, _, _| by_sum.push(session)).expect("readable");
    by_sample.dedup();
    assert_eq!((by_sample, by_sum), (ids.to_vec(), ids.to_vec()));
    let one = Scope { range_ns: 0..u64::MAX, sessions: &|session| session == 1 << 63 };
    let mut found = Vec::new();
    views[0].samples(&one, &mut |sample| found.push(sample.session)).expect("readable");
    assert_eq!(found, [1 << 63; 60]);
    views[0].names(|_, sessions| assert_eq!(sessions.keys().copied().collect::<Vec<_>>(), ids));
}

/// Profiles have names of private programs.
#[test]
fn files_of_a_store_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().expect("temporary directory");
    let directory = parent.path().join("new");
    let check = |when: &str| {
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700, "{when}");
        let files: Vec<PathBuf> = fs::read_dir(&directory)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{when}: {}", file.display());
        }
    };
    let store = unloaded::store_of_four(&directory);
    check("with logs");
    store.maintain().expect("upkeep");
    check("after upkeep");
    store.shared.partitions.read()[0].remove_levels(1).expect("closed");
    check("after a level was removed, which writes the file again");
    store.close().expect("fold");
    // As an early version left them.
    let old = partition_paths(&directory).expect("a store").remove(0);
    fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).expect("own file");
    Store::open(&directory, Retention::default()).expect("a store").close().expect("fold");
    assert_eq!(fs::metadata(&old).expect("there").permissions().mode() & 0o777, 0o640);
}
