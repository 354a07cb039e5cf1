//! A recording of an earlier version of the agent goes through a collector into a store, and its profile is whole.
//!
//! Exports of it are in `exports.rs`.

use crate::recorded;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::recorded::EARLIER;
use collector::address::Address;
use collector::ingest::{Destination, Limits, Server};
use collector::store::{Retention, Store};
use profile::export::{Options, collapsed};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::Summary;
use proto::framing::{FrameReader, encode_frame};
use proto::rows::rows;
use proto::v1::agent_message::Body;
use proto::v1::{CollectorMessage, collector_message};

/// Samples and CPU time, in nanoseconds, of a profile.
fn sums(profile: &ProcessProfile) -> (u64, u64) {
    let total = profile.total();
    (total.samples, total.cpu_ns)
}

#[test]
fn a_collector_stores_what_an_earlier_agent_sent() {
    let messages = recorded::recorded(EARLIER);
    let (mut sent, mut stacks) = ((0, 0), 0);
    for message in &messages {
        match &message.body {
            Some(Body::Samples(batch)) => {
                rows(batch).for_each(|row| sent = (sent.0 + row.count, sent.1 + row.cpu_ns));
            }
            Some(Body::Dictionary(dictionary)) => {
                let entries = dictionary.entries.iter();
                stacks += entries.map(|entries| entries.stack_id.len()).sum::<usize>();
            }
            Some(Body::Statistics(statistics)) => assert_eq!(statistics.biased, None, "of an earlier agent"),
            _ => {}
        }
    }
    assert_eq!(stacks, 0, "recorded by an earlier agent");
    assert!(sent.0 > 100, "{sent:?}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    let store = Arc::new(Store::open(&folder.path().join("store"), Retention::default()).expect("a store"));
    let destination = Destination::Store(Arc::clone(&store));
    let server =
        Server::start(&Address::Unix(path.clone()), destination, Limits::default()).expect("a server");
    let mut connection = UnixStream::connect(path).expect("server listens");
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode_frame(message, &mut bytes).expect("short message"));
    connection.write_all(&bytes).expect("server reads");
    connection.shutdown(Shutdown::Write).expect("end of sending");
    let mut acknowledged = 0;
    let mut answers = FrameReader::new(&connection);
    while let Some(answer) = answers.next::<CollectorMessage>().expect("well-formed") {
        match answer.body {
            Some(collector_message::Body::Acknowledgement(answer)) => acknowledged = answer.sequence,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(acknowledged, messages.len() as u64);
    server.stop();

    let now_ns = recorded::profile(EARLIER).session().last_ns;
    let stored = ProcessProfile::of(&*store, &Selection::default(), now_ns).expect("one process");
    assert_eq!(sums(&stored), sent);
    assert_eq!(sums(&recorded::profile(EARLIER)), sent);
    let summary = Summary::new(&stored);
    assert_eq!((summary.samples, summary.biased, summary.biased_received), (sent.0, None, 0));
    assert!(summary.complete && summary.explained > 0.5, "{summary:?}");
    assert!(!summary.sentence().contains("biased"), "{}", summary.sentence());
    assert_eq!(stored.session().unknown_samples, 0);
    let collapsed = |profile: &ProcessProfile| {
        let mut text = Vec::new();
        collapsed::write(profile, Options::default(), &mut text).expect("memory");
        String::from_utf8(text).expect("text")
    };
    assert_eq!(collapsed(&stored), collapsed(&recorded::profile(EARLIER)));
}
