//! A collector that fills a lake: the same answers as from the store, nothing lost and nothing doubled.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use collector::store::{Intervals, Retention, Store, StoreError};
use futures_util::stream::{BoxStream, StreamExt as _};
use lake::read::{Limits, Selected};
use lake::storage::{Lake, LakeUrl};
use lake::upkeep::{compact, expire};
use lake::write::upload::upload_oldest;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, path::Path as ObjectPath,
};
use profile::query::flat::{Flat, Order};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::Summary;
use profile::source::{Source, Wanted};
use proto::framing::{Checksums, FramedMessage};
use proto::v1::AgentMessage;
use proto::v1::agent_message::Body;

use crate::recorded::{keep, recorded};

/// 2026-11-29, 03:59:50 UTC: ten seconds before the end of an hour.
const START_NS: u64 = 1_795_924_790_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;

fn open(directory: &Path) -> Store {
    Store::open_for_lake(directory, Retention::default(), Intervals::default()).expect("a store")
}

fn lake_in(directory: &Path) -> Lake {
    let url: LakeUrl = format!("file://{}", directory.display()).parse().expect("a URL");
    Lake::create(&url).expect("a directory")
}

/// Folds what is in the journal, and uploads all intervals.
fn fill(store: &Store, lake: &Lake) {
    store.flush().expect("a fold");
    let spool = store.spool().expect("a store for a lake");
    while upload_oldest(spool, lake).expect("a lake that works") {}
}

fn select(pairs: &[(&str, &str)]) -> Selection {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Selection::of(&pairs).expect("a selection")
}

fn read(lake: &Lake, selection: &Selection) -> Selected {
    let wanted = Wanted {
        ranges_ns: &[selection.limits_ns(0)],
        processes: selection.processes(),
        sessions: Some(&|id, session| selection.matches_session(id, session)),
        has_samples: true,
        is_over: &|| false,
    };
    Selected::read(lake, &wanted, Limits::default(), &|_| {}).expect("a lake that works")
}

/// The methods of a selection with self and total time, and their samples.
fn methods(source: &dyn Source, selection: &Selection) -> BTreeMap<String, [u64; 4]> {
    let (flat, _) = Flat::of(source, selection, 0).expect("a source that can be read");
    let methods = flat.methods(Order::SelfTime).into_iter();
    methods
        .map(|method| {
            (method.name, [method.self_ns, method.total_ns, method.self_samples, method.total_samples])
        })
        .collect()
}

/// CPU time of all samples by session.
fn sums(source: &dyn Source) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    let scope = profile::source::Scope { range_ns: 0..u64::MAX, sessions: &|_| true };
    for part in source.parts() {
        let add =
            &mut |sample: profile::source::Sample| *sums.entry(sample.session).or_default() += sample.cpu_ns;
        part.samples(&scope, add).expect("a source that can be read");
    }
    sums
}

fn framed(message: &AgentMessage) -> FramedMessage {
    FramedMessage::encode(message.clone(), Checksums::Optional).expect("a short message")
}

/// A recording whose session has this id.
fn session(name: &str, id: u64) -> Vec<AgentMessage> {
    let mut messages = recorded(name);
    for message in &mut messages {
        if let Some(Body::Hello(hello)) = &mut message.body {
            (hello.session_id, hello.wall_clock_ns) = (id, START_NS);
        }
    }
    messages
}

#[test]
fn a_lake_answers_like_its_store() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (store, lake) = (open(&directory.path().join("store")), lake_in(&directory.path().join("lake")));
    for (id, name) in [(1, "h2-25"), (2, "planted-25"), (3, "virtual-25"), (4, "lossy-21")] {
        keep(&store, session(name, id), START_NS).expect("a store");
        fill(&store, &lake);
    }
    let all = Selection::default();
    let whole = read(&lake, &all);
    assert_eq!(sums(&whole), sums(&store));
    assert_eq!(whole.doubled, 0);
    for selection in [
        all,
        select(&[("process", "0000000000000001")]),
        select(&[("from", "1795924793"), ("to", "1795924801.5")]),
        select(&[("frame", "java.util"), ("thread_kind", "java")]),
        select(&[("kind", "c2")]),
    ] {
        let methods_of_store = methods(&store, &selection);
        assert!(methods_of_store.len() > 5, "{selection:?}");
        assert_eq!(methods(&read(&lake, &selection), &selection), methods_of_store, "{selection:?}");
    }
}

#[test]
fn a_lake_has_the_account_of_a_session() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (store, lake) = (open(&directory.path().join("store")), lake_in(&directory.path().join("lake")));
    keep(&store, session("lossy-21", 7), START_NS).expect("a store");
    fill(&store, &lake);
    let all = Selection::default();
    let of = |source: &dyn Source| Summary::new(&ProcessProfile::of(source, &all, 0).expect("one process"));
    let (own, other) = (of(&read(&lake, &all)), of(&store));
    assert_eq!(own.sentence(), other.sentence());
    assert_eq!(own.cpu_ns.lost, other.cpu_ns.lost);
    assert!(own.cpu_ns.lost_ns() > 0 && own.complete);
    let names = |summary: &Summary| {
        let rows = summary.threads.iter().filter(|row| row.sampled_ns > 0 || row.samples > 0);
        rows.map(|row| (row.name.clone(), row.kind)).collect::<Vec<_>>()
    };
    assert!(!names(&other).is_empty());
}

#[test]
fn acknowledged_samples_are_in_the_lake_after_a_crash() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (path, lake) = (directory.path().join("store"), lake_in(&directory.path().join("lake")));
    let messages = session("h2-25", 1);
    let (first, second) = messages.split_at(messages.len() / 2);
    let store = open(&path);
    keep(&store, first.to_vec(), START_NS).expect("a store");
    store.flush().expect("a fold");
    for message in second {
        let Some(Body::Hello(hello)) = &messages[0].body else { panic!("hello comes first") };
        store.session(hello).and_then(|writer| writer.append(vec![framed(message)])).expect("a store");
    }
    let expected = sums(&store);
    // A store that is dropped does not fold, like one whose process is killed. The interval of the first half waits.
    drop(store);
    let store = open(&path);
    fill(&store, &lake);
    assert_eq!(sums(&read(&lake, &Selection::default())), expected);
    assert_eq!(sums(&store), expected);
}

#[test]
fn an_agent_that_moves_to_another_collector_is_neither_lost_nor_doubled() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let lake = lake_in(&directory.path().join("lake"));
    let messages = session("h2-25", 1);
    let Some(Body::Hello(hello)) = messages[0].body.clone() else { panic!("hello comes first") };
    let (resent, moved) = (messages.len() / 3, messages.len() / 2);
    let put = |name: &str, messages: &mut dyn Iterator<Item = &AgentMessage>| {
        let store = open(&directory.path().join(name));
        let writer = store.session(&hello).expect("a store");
        writer.append(messages.map(framed).collect()).expect("a store");
        fill(&store, &lake);
    };
    put("one", &mut messages[..moved].iter());
    // The acknowledgements of the last messages were lost, so they are sent again, behind all names.
    let is_name =
        |message: &&AgentMessage| matches!(message.body, Some(Body::Dictionary(_) | Body::Hello(_)));
    put("other", &mut messages[..resent].iter().filter(is_name).chain(&messages[resent..]));
    let expected = open(&directory.path().join("all"));
    keep(&expected, messages.clone(), START_NS).expect("a store");
    let selected = read(&lake, &Selection::default());
    assert!(selected.doubled > 100, "{} samples were sent twice", selected.doubled);
    assert_eq!(sums(&selected), sums(&expected));
    let all = Selection::default();
    assert_eq!(methods(&selected, &all), methods(&expected, &all));
    // Compaction drops them for good.
    compact(&lake, START_NS + 9 * HOUR_NS).expect("a lake that works");
    let selected = read(&lake, &all);
    assert_eq!(selected.doubled, 0);
    assert_eq!(methods(&selected, &all), methods(&expected, &all));
}

#[test]
fn compaction_and_retention_can_be_repeated() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let root = directory.path().join("lake");
    let (store, lake) = (open(&directory.path().join("store")), lake_in(&root));
    for (id, name) in [(1, "planted-25"), (2, "steady-25"), (3, "planted-17")] {
        keep(&store, session(name, id), START_NS).expect("a store");
        fill(&store, &lake);
    }
    let all = Selection::default();
    let (before, answer) = (count_files(&root), methods(&read(&lake, &all), &all));
    let early = compact(&lake, START_NS + HOUR_NS).expect("a lake that works");
    assert_eq!(early.removed, 0, "the hour may still get intervals");
    let done = compact(&lake, START_NS + 9 * HOUR_NS).expect("a lake that works");
    assert!(done.removed > done.written && done.written > 0, "{done:?}");
    assert_eq!(count_files(&root), before - (done.removed - done.written) as usize);
    assert_eq!(methods(&read(&lake, &all), &all), answer);
    assert_eq!(compact(&lake, START_NS + 9 * HOUR_NS).expect("a lake that works"), Default::default());
    let day_ns = 24 * HOUR_NS;
    assert_eq!(expire(&lake, 3, START_NS + 3 * day_ns).expect("a lake that works").removed, 0);
    assert!(expire(&lake, 3, START_NS + 4 * day_ns).expect("a lake that works").removed > 0);
    assert_eq!(expire(&lake, 3, START_NS + 4 * day_ns).expect("a lake that works").removed, 0);
    assert_eq!(count_files(&root), 0);
    assert!(read(&lake, &all).parts()[0].range_ns().is_empty());
}

/// A compaction is killed while it removes the files of the third table, so that rows are in two files.
#[test]
fn an_interrupted_compaction_can_be_repeated() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let store = open(directory.path());
    let objects = Arc::new(Unreliable { most_deletes: Some(AtomicUsize::new(7)), ..Unreliable::default() });
    let lake = Lake::of(objects.clone(), ObjectPath::default(), "memory".into()).expect("a runtime");
    for (id, name) in [(1, "planted-25"), (2, "steady-25"), (3, "planted-17")] {
        keep(&store, session(name, id), START_NS).expect("a store");
        fill(&store, &lake);
    }
    let all = Selection::default();
    let answer = methods(&store, &all);
    assert!(compact(&lake, START_NS + 9 * HOUR_NS).is_err(), "files cannot be removed");
    let half = read(&lake, &all);
    assert!(half.doubled > 100, "{} samples are there twice", half.doubled);
    assert_eq!(methods(&half, &all), answer);
    let inner = Arc::clone(&objects.inner);
    let whole = Lake::of(inner, ObjectPath::default(), "memory".into()).expect("a runtime");
    compact(&whole, START_NS + 9 * HOUR_NS).expect("a lake that works");
    let selected = read(&whole, &all);
    assert_eq!((methods(&selected, &all), selected.doubled), (answer, 0));
    assert_eq!(compact(&whole, START_NS + 9 * HOUR_NS).expect("a lake that works"), Default::default());
}

/// Nothing but the time seals the interval.
#[test]
fn an_interval_ends_after_its_time() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let intervals = Intervals { every: Duration::from_millis(20), ..Intervals::default() };
    let store = Store::open_for_lake(directory.path(), Retention::default(), intervals).expect("a store");
    keep(&store, session("planted-25", 1), START_NS).expect("a store");
    let spool = store.spool().expect("a store for a lake");
    spool.wait();
    assert!(spool.oldest().expect("a folder").is_some());
}

fn count_files(directory: &Path) -> usize {
    let entries =
        std::fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.map(|path| if path.is_dir() { count_files(&path) } else { 1 }).sum()
}

#[test]
fn an_outage_is_bridged_and_then_agents_are_not_acknowledged() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let is_away = Arc::new(AtomicBool::new(true));
    let objects = Arc::new(Unreliable { is_away: Arc::clone(&is_away), ..Unreliable::default() });
    let lake = Lake::of(objects, ObjectPath::from("some/prefix"), "memory".into()).expect("a runtime");
    // One interval fills this spool.
    let intervals = Intervals { spool_bytes: 1, ..Intervals::default() };
    let store = Store::open_for_lake(directory.path(), Retention::default(), intervals).expect("a store");
    let messages = session("planted-25", 1);
    let (first, second) = messages.split_at(messages.len() / 2);
    keep(&store, first.to_vec(), START_NS).expect("the spool has space");
    store.flush().expect("a fold");
    let spool = store.spool().expect("a store for a lake");
    assert!(upload_oldest(spool, &lake).is_err());
    assert!(store.status().lake.is_some_and(|lake| lake.waiting == 1 && lake.waiting_bytes > 1000));
    let Some(Body::Hello(hello)) = &messages[0].body else { panic!("hello comes first") };
    let writer = store.session(hello).expect("a store");
    let rest: Vec<FramedMessage> = second.iter().map(framed).collect();
    assert_eq!(writer.append(rest.clone()), Err(StoreError::LakeFull));
    is_away.store(false, Ordering::Relaxed);
    assert_eq!(upload_oldest(spool, &lake).ok(), Some(true));
    assert!(writer.append(rest).is_ok(), "the agent sends it again");
    fill(&store, &lake);
    assert_eq!(sums(&read(&lake, &Selection::default())), sums(&store));
}

/// An object store that is away at times.
#[derive(Debug, Default)]
struct Unreliable {
    inner: Arc<InMemory>,
    is_away: Arc<AtomicBool>,
    /// How many files can be removed.
    most_deletes: Option<AtomicUsize>,
}

fn refused() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "503 Slow Down".into() }
}

impl std::fmt::Display for Unreliable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object store that is away at times")
    }
}

#[async_trait]
impl ObjectStore for Unreliable {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(refused());
        }
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        let take = |left: &AtomicUsize| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        };
        if self.most_deletes.as_ref().is_some_and(|left| take(left).is_err()) {
            return locations.map(|_| Err(refused())).boxed();
        }
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
