//! The server on real sockets, with well-behaved and hostile peers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Stream, small};
use collector::address::Address;
use collector::ingest::{Access, Destination, Limits, Server};
use collector::store::{Retention, Store};
use profile::source::recording::RecordingReader;
use proto::framing::{FrameReader, encode_frame};
use proto::v1::{AgentMessage, CollectorMessage, Heartbeat, agent_message, collector_message::Body};
use tempfile::TempDir;

/// A server on a Unix socket that records into `recording` beside it.
struct Fixture {
    directory: TempDir,
    server: Server,
}

impl Fixture {
    fn new() -> Self {
        Fixture::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let address = Address::Unix(directory.path().join("socket"));
        let destination = Destination::File(directory.path().join("recording"));
        let server = Server::start(&address, destination, limits).expect("server starts");
        Fixture { directory, server }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("socket")).expect("server listens")
    }

    /// Stops the server; the bytes of the recording.
    fn recorded(self) -> Vec<u8> {
        self.server.stop();
        std::fs::read(self.directory.path().join("recording")).expect("recording")
    }
}

/// Sends `bytes`, then reads what the server answers until it closes: highest acknowledgement and rejection.
fn converse(mut stream: UnixStream, bytes: &[u8]) -> (u64, Option<String>) {
    stream.write_all(bytes).expect("server reads");
    stream.shutdown(Shutdown::Write).expect("end of sending");
    answers(stream)
}

fn answers(stream: impl Read) -> (u64, Option<String>) {
    let mut reader = FrameReader::new(stream);
    let mut acknowledged = 0;
    let mut rejected = None;
    while let Ok(Some(message)) = reader.next::<CollectorMessage>() {
        match message.body.expect("every answer has a body") {
            Body::Acknowledgement(acknowledgement) => {
                assert!(acknowledgement.sequence >= acknowledged, "acknowledgements are cumulative");
                acknowledged = acknowledgement.sequence;
            }
            Body::Reject(reject) => rejected = Some(reject.reason),
        }
    }
    (acknowledged, rejected)
}

/// Waits until `sequence` is acknowledged.
fn await_acknowledgement(stream: &UnixStream, sequence: u64) {
    let mut reader = FrameReader::new(stream);
    loop {
        let message: CollectorMessage = reader.next().expect("well-formed").expect("connection is open");
        if matches!(message.body, Some(Body::Acknowledgement(got)) if got.sequence >= sequence) {
            return;
        }
    }
}

/// Checks that `bytes` are answered with a rejection that contains `reason`, and that `kept` bytes are recorded.
fn check_rejected(bytes: &[u8], reason: &str, kept: &[u8]) {
    let fixture = Fixture::new();
    let (_, rejected) = converse(fixture.connect(), bytes);
    let rejected = rejected.unwrap_or_default();
    assert!(rejected.contains(reason), "rejected because {rejected:?}, expected {reason:?}");
    let directory = fixture.directory.path().to_owned();
    fixture.server.stop();
    let recorded = std::fs::read(directory.join("recording")).unwrap_or_default();
    assert!(recorded == kept, "{} bytes kept, expected {}", recorded.len(), kept.len());
}

#[test]
fn a_session_is_recorded_verbatim_and_acknowledged() {
    let mut stream = small();
    let last = stream.messages().len() as u64;
    let bytes = stream.bytes();
    let fixture = Fixture::new();
    assert_eq!(converse(fixture.connect(), &bytes), (last, None));
    assert!(fixture.recorded() == bytes);
}

#[test]
fn tcp_serves_as_well() {
    let bytes = small().bytes();
    let directory = tempfile::tempdir().expect("temporary directory");
    let address = "tcp:127.0.0.1:0".parse().expect("address");
    let destination = Destination::Directory(directory.path().to_owned());
    let server = Server::start(&address, destination, Limits::default()).expect("server starts");
    let Address::Tcp { host, port } = server.address().clone() else { panic!("a TCP address") };
    let mut stream = TcpStream::connect((host, port)).expect("server listens");
    stream.write_all(&bytes).expect("server reads");
    stream.shutdown(Shutdown::Write).expect("end of sending");
    assert!(answers(stream).0 > 0);
    let sessions = server.stop();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].path, directory.path().join("4321-0000000000c0ffee.tickwalk"));
    assert!(std::fs::read(&sessions[0].path).expect("recording") == bytes);
}

#[test]
fn messages_may_arrive_byte_by_byte() {
    let bytes = small().bytes();
    let fixture = Fixture::new();
    let mut stream = fixture.connect();
    for byte in &bytes[..400] {
        stream.write_all(std::slice::from_ref(byte)).expect("server reads");
    }
    converse(stream, &bytes[400..]);
    assert!(fixture.recorded() == bytes);
}

#[test]
fn refused_peers_get_a_reason() {
    check_rejected(b"GET / HTTP/1.1\r\n\r\n", "flag byte 0x47", b"");
    check_rejected(&[1, 0, 0, 0, 0], "compressed", b"");
    check_rejected(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff], "not valid protobuf", b"");
    check_rejected(&[0, 0xff, 0, 0, 0], "exceeds the limit", b"");
    check_rejected(&[0, 0, 0], "ends after 3 bytes", b"");
}

#[test]
fn other_versions_and_first_messages_are_refused() {
    let hello = small().messages()[0].clone();
    let altered = |change: fn(&mut proto::v1::Hello)| {
        let mut message = hello.clone();
        if let Some(agent_message::Body::Hello(hello)) = &mut message.body {
            change(hello);
        }
        framed(&message)
    };
    check_rejected(&altered(|hello| hello.wire_version = 9), "wire version 9", b"");
    check_rejected(&altered(|hello| hello.magic = 1), "magic number 0x00000001", b"");
    let heartbeat =
        AgentMessage { sequence: 1, body: Some(agent_message::Body::Heartbeat(Heartbeat { time_ns: 1 })) };
    check_rejected(&framed(&heartbeat), "not a Hello", b"");
    let unnumbered = AgentMessage { sequence: 0, ..hello.clone() };
    check_rejected(&framed(&unnumbered), "no sequence number", b"");
    let two = [framed(&hello), altered(|hello| hello.session_id = 2)].concat();
    check_rejected(&two, "another session", &framed(&hello));
}

#[test]
fn messages_before_invalid_bytes_are_kept() {
    let framed = small().framed();
    let good = framed[..3].concat();
    check_rejected(&[&good[..], b"garbage"].concat(), "flag byte 0x67", &good);
    check_rejected(&[&good[..], &framed[3][..9]].concat(), "ends after 9 bytes", &good);
    let oversized = [0, 0x7f, 0xff, 0xff, 0xff];
    check_rejected(&[&good[..], &oversized].concat(), "exceeds the limit", &good);
}

#[test]
fn a_hostile_peer_does_not_disturb_another() {
    let mut stream = small();
    let framed = stream.framed();
    let fixture = Fixture::new();
    let mut agent = fixture.connect();
    agent.write_all(&framed[0]).expect("server reads");
    await_acknowledgement(&agent, 1);
    let (_, rejected) = converse(fixture.connect(), b"garbage");
    assert!(rejected.is_some());
    converse(agent, &framed[1..].concat());
    assert!(fixture.recorded() == stream.bytes());
}

#[test]
fn an_agent_that_reconnects_goes_on_in_its_recording() {
    let mut stream = small();
    let framed = stream.framed();
    let fixture = Fixture::new();
    // The connection is lost inside message 4; the agent has no acknowledgement beyond its hello.
    converse(fixture.connect(), &[framed[..3].concat(), framed[3][..5].to_vec()].concat());
    let (acknowledged, _) = converse(fixture.connect(), &stream.bytes());
    assert_eq!(acknowledged, framed.len() as u64);
    assert!(fixture.recorded() == stream.bytes());
}

#[test]
fn a_restarted_collector_resumes_recordings() {
    let mut stream = small();
    let framed = stream.framed();
    let directory = tempfile::tempdir().expect("temporary directory");
    let socket = directory.path().join("socket");
    for part in [framed[..2].concat(), stream.bytes()] {
        let destination = Destination::Directory(directory.path().to_owned());
        let address = Address::Unix(socket.clone());
        let server = Server::start(&address, destination, Limits::default()).expect("server starts");
        converse(UnixStream::connect(&socket).expect("server listens"), &part);
        let sessions = server.stop();
        // A crash of the machine can leave half a message behind.
        let mut file = std::fs::OpenOptions::new().append(true).open(&sessions[0].path).expect("recording");
        file.write_all(&[0, 0, 0, 1]).expect("append");
    }
    let path = directory.path().join("4321-0000000000c0ffee.tickwalk");
    let recorded = std::fs::read(path).expect("recording");
    assert!(recorded[..recorded.len() - 4] == stream.bytes());
}

#[test]
fn sessions_have_recordings_of_their_own() {
    let fixture = Fixture::new();
    let mut second = Stream::of_session(2);
    second.goodbye();
    converse(fixture.connect(), &small().bytes());
    converse(fixture.connect(), &second.bytes());
    let Fixture { directory, server } = fixture;
    let sessions = server.stop();
    let paths: Vec<&Path> = sessions.iter().map(|session| session.path.as_path()).collect();
    assert_eq!(paths, [directory.path().join("recording"), directory.path().join("recording-4321.tickwalk")]);
    assert!(std::fs::read(paths[1]).expect("recording") == second.bytes());
}

#[test]
fn a_stop_stores_received_bytes_and_does_not_wait_for_peers() {
    let mut stream = small();
    let framed = stream.framed();
    let fixture = Fixture::new();
    let silent = fixture.connect();
    let mut partial = fixture.connect();
    partial.write_all(&framed[0][..3]).expect("server reads");
    let mut agent = fixture.connect();
    agent.write_all(&stream.bytes()).expect("server reads");
    // None of the peers closes its connection, and the last one has not been accepted for sure.
    assert!(fixture.recorded() == stream.bytes());
    drop((silent, partial, agent));
}

#[test]
fn connections_and_sessions_beyond_the_limits_are_refused() {
    let limits = Limits { connections: 1, sessions: 1, ..Limits::default() };
    let fixture = Fixture::with(limits);
    let mut agent = fixture.connect();
    agent.write_all(&small().framed()[0]).expect("server reads");
    await_acknowledgement(&agent, 1);
    let (_, rejected) = answers_to(fixture.connect(), &Stream::of_session(2).bytes());
    assert!(rejected.unwrap_or_default().contains("maximum of 1 connections"));
    drop(agent);
    // The place is free once the server has noticed the end of the first connection.
    let rejected = loop {
        let (_, rejected) = answers_to(fixture.connect(), &Stream::of_session(2).bytes());
        let reason = rejected.unwrap_or_default();
        if !reason.contains("maximum of 1 connections") {
            break reason;
        }
    };
    assert!(rejected.contains("maximum of 1 sessions"), "{rejected}");
}

/// Peers without the token, or that say nothing, hold no place of an agent, however many they are.
#[test]
fn peers_without_the_token_hold_no_places() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let address = Address::Unix(directory.path().join("socket"));
    let destination = Destination::File(directory.path().join("recording"));
    let access = Access { token: Some("sesame".to_owned()), ..Access::default() };
    let limits = Limits { connections: 1, unknown: 4, ..Limits::default() };
    let server = Server::start_for(access, &address, destination, limits).expect("server starts");
    let connect = || UnixStream::connect(directory.path().join("socket")).expect("server listens");
    let mut silent: Vec<UnixStream> = (0..300).map(|_| connect()).collect();
    let mut messages = small().messages().to_vec();
    if let Some(agent_message::Body::Hello(hello)) = &mut messages[0].body {
        hello.token = "sesame".to_owned();
    }
    let bytes: Vec<u8> = messages.iter().flat_map(framed).collect();
    assert_eq!(converse(connect(), &bytes), (messages.len() as u64, None));
    // The oldest were closed for newer ones, long before their time to say hello was over.
    silent[0].set_read_timeout(Some(Limits::default().hello / 2)).expect("a timeout");
    assert_eq!(silent[0].read(&mut [0]).expect("an end, not a timeout"), 0);
    assert!(server.stop_handle().health().refused >= 290);
    server.stop();
}

#[test]
fn sessions_without_a_connection_are_evicted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let address = Address::Unix(directory.path().join("socket"));
    let destination = Destination::Directory(directory.path().to_owned());
    let limits = Limits { sessions: 2, ..Limits::default() };
    let server = Server::start(&address, destination, limits).expect("server starts");
    let connect = || UnixStream::connect(directory.path().join("socket")).expect("server listens");
    let first_half = |session| Stream::of_session(session).framed()[0].clone();
    // Ten JVMs, one after the other, which end without a goodbye.
    for session in 1..=10 {
        // The session before is left when its connection has ended, which takes a moment.
        let answer = || converse(connect(), &first_half(session));
        let refused = |(_, rejected): &(u64, Option<String>)| rejected.is_some();
        assert!(std::iter::repeat_with(answer).take(10_000).any(|answer| !refused(&answer)));
    }
    // One that is connected is not forgotten, and comes first.
    let open: Vec<UnixStream> = [11, 12].map(|session| held(&connect, &first_half(session))).into();
    let (_, rejected) = converse(connect(), &first_half(13));
    assert_eq!(
        rejected.as_deref(),
        Some("the collector already has its maximum of 2 sessions; try again later")
    );
    drop(open);
    // The first comes back after it has been forgotten, and goes on in its recording without doubling anything.
    let mut again = small();
    again.rename(1);
    let last = again.messages().len() as u64;
    let answers = std::iter::repeat_with(|| answers_to(connect(), &again.bytes()));
    let answer = answers.take(10_000).find(|(_, rejected)| rejected.is_none());
    assert_eq!(answer, Some((last, None)));
    server.stop();
    let recorded =
        std::fs::read(directory.path().join(format!("4321-{:016x}.tickwalk", 1))).expect("recording");
    let numbers: Vec<u64> =
        RecordingReader::new(&recorded[..]).expect("recording").map(|message| message.sequence).collect();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
}

/// A connection that was admitted with `hello` and remains open.
fn held(connect: &impl Fn() -> UnixStream, hello: &[u8]) -> UnixStream {
    loop {
        let mut stream = connect();
        stream.write_all(hello).expect("server reads");
        let message: Option<CollectorMessage> = FrameReader::new(&stream).next().expect("well-formed");
        if matches!(message.and_then(|message| message.body), Some(Body::Acknowledgement(_))) {
            return stream;
        }
    }
}

#[test]
fn messages_are_limited_in_length_and_more_so_before_the_hello() {
    let prefix = |len: u32| [&[0], &len.to_be_bytes()[..]].concat();
    let fixture = Fixture::new();
    let (_, rejected) = answers_to(fixture.connect(), &prefix((256 << 10) + 1));
    assert_eq!(rejected.as_deref(), Some("message of 262145 bytes exceeds the limit of 262144 bytes"));
    let hello = &small().framed()[0];
    let after_hello = |len| answers_to(fixture.connect(), &[&hello[..], &prefix(len)].concat());
    let limit = proto::framing::MAX_MESSAGE_BYTES as u32;
    let (_, rejected) = after_hello(limit + 1);
    assert_eq!(rejected.as_deref(), Some("message of 4194305 bytes exceeds the limit of 4194304 bytes"));
    // One of the limit's length is waited for: what is wrong with it is that it never comes.
    assert_eq!(after_hello(limit), (1, Some("stream ends after 5 bytes of a message".to_owned())));
}

#[test]
fn slow_senders_are_disconnected() {
    // Only one of the limits is short, so that a server that is late does not mistake one for the other.
    let (short, long) = (Duration::from_millis(200), Duration::from_secs(600));
    let framed = small().framed();
    // A long message that would take minutes, before the peer is known and after.
    for (start, hello, silence, reason) in [
        (&[][..], short, long, "no Hello arrived in time; connect again"),
        (&framed[0], long, short, "no complete message arrived in time; connect again"),
    ] {
        let fixture = Fixture::with(Limits { hello, silence, ..Limits::default() });
        let mut stream = fixture.connect();
        stream.write_all(&[start, &[0, 0, 1, 0, 0]].concat()).expect("server reads");
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let mut answer = Vec::new();
        let is_closed = (0..5000).any(|_| {
            let is_refused = stream.write_all(&[0]).is_err();
            let mut chunk = [0; 512];
            match stream.read(&mut chunk) {
                Ok(read) => answer.extend_from_slice(&chunk[..read]),
                Err(error) => {
                    assert!(is_refused || error.kind() == std::io::ErrorKind::WouldBlock, "{error}")
                }
            }
            is_refused || String::from_utf8_lossy(&answer).contains(reason)
        });
        assert!(is_closed && String::from_utf8_lossy(&answer).contains(reason), "{reason}");
    }
}

/// Sends `bytes` and reads the answers of a server that may close before it has read everything.
fn answers_to(mut stream: UnixStream, bytes: &[u8]) -> (u64, Option<String>) {
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    answers(stream)
}

#[test]
fn a_wrong_token_is_refused_and_a_right_one_is_not_recorded() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let address = Address::Unix(directory.path().join("socket"));
    let destination = Destination::File(directory.path().join("recording"));
    let access = Access { token: Some("sesame".to_owned()), ..Access::default() };
    let server = Server::start_for(access, &address, destination, Limits::default()).expect("server starts");
    let connect = || UnixStream::connect(directory.path().join("socket")).expect("server listens");
    let mut messages = small().messages().to_vec();
    let plain = small().bytes();
    let (acknowledged, rejected) = answers_to(connect(), &plain);
    assert_eq!(
        (acknowledged, rejected.as_deref()),
        (0, Some("the token is missing or wrong; set token= or tokenfile= to the collector's token"))
    );
    if let Some(agent_message::Body::Hello(hello)) = &mut messages[0].body {
        hello.token = "sesame".to_owned();
    }
    let mut bytes = Vec::new();
    for message in &messages {
        encode_frame(message, &mut bytes).expect("small message");
    }
    assert_eq!(converse(connect(), &bytes), (messages.len() as u64, None));
    server.stop();
    let recorded = std::fs::read(directory.path().join("recording")).expect("recording");
    assert!(recorded == plain, "the token was recorded, or something else was changed");
}

/// The messages of a session with this secret, framed.
fn with_secret(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = small().messages().to_vec();
    if let Some(agent_message::Body::Hello(hello)) = &mut messages[0].body {
        hello.secret = secret.to_vec();
    }
    messages.iter().map(framed).collect()
}

fn framed(message: &AgentMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(message, &mut bytes).expect("small message");
    bytes
}

/// A connection that has the id of a session but not its secret is refused, and the session goes on, before and after a
/// restart of the collector.
#[test]
fn a_session_belongs_to_the_agent_with_its_secret() {
    const SECRET: &[u8] = b"sixteen letters.";
    let agent = with_secret(SECRET);
    let (first, all) = (agent[..2].concat(), agent.concat());
    let last = agent.len() as u64;
    let intruders = [with_secret(b"another secret!!"), with_secret(b"")];
    for kind in ["file", "directory", "store"] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let address = Address::Unix(directory.path().join("socket"));
        let connect = || UnixStream::connect(directory.path().join("socket")).expect("server listens");
        let kept = directory.path().join(kind);
        let start = || {
            let destination = match kind {
                "file" => Destination::File(kept.clone()),
                "directory" => Destination::Directory(directory.path().to_owned()),
                _ => Destination::Store(Arc::new(
                    Store::open(&kept, Retention::default()).expect("a store opens"),
                )),
            };
            Server::start(&address, destination, Limits::default()).expect("server starts")
        };
        let check_intruders_refused = || {
            for intruder in &intruders {
                let (_, rejected) = answers_to(connect(), &intruder.concat());
                let reason = rejected.unwrap_or_default();
                assert!(reason.contains("belongs to another agent"), "{kind}: {reason:?}");
            }
        };
        let mut server = start();
        assert_eq!(converse(connect(), &first), (2, None), "{kind}");
        check_intruders_refused();
        // Another collector's file would be another recording.
        if kind != "file" {
            server.stop();
            server = start();
            check_intruders_refused();
        }
        assert_eq!(converse(connect(), &all), (last, None), "{kind}");
        server.stop();
        for entry in std::fs::read_dir(directory.path())
            .expect("a folder")
            .chain(std::fs::read_dir(&kept).into_iter().flatten())
        {
            let bytes = std::fs::read(entry.expect("an entry").path()).unwrap_or_default();
            assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET), "{kind}: the secret is kept");
        }
    }
}

/// A message with a huge number would make all later ones look like repeated ones.
#[test]
fn jumps_in_the_numbers_are_refused() {
    let messages = small().messages().to_vec();
    let hello = framed(&messages[0]);
    let numbered = |sequence| framed(&AgentMessage { sequence, ..messages[1].clone() });
    check_rejected(
        &framed(&AgentMessage { sequence: u64::MAX, ..messages[0].clone() }),
        "message 18446744073709551615 follows message 0",
        b"",
    );
    let jump = [&hello[..], &numbered(u64::MAX)].concat();
    check_rejected(&jump, "message 18446744073709551615 follows message 1", &hello);
    let [second, fourth] = [numbered(2), numbered(4)];
    check_rejected(
        &[&hello[..], &second, &fourth].concat(),
        "message 4 follows message 2",
        &[hello, second].concat(),
    );
}

/// A collector that lost its store gets what its predecessor has not acknowledged.
#[test]
fn messages_may_be_missing_behind_the_hello() {
    let messages = small().messages().to_vec();
    let later = |sequence| framed(&AgentMessage { sequence, ..messages[1].clone() });
    let bytes = [framed(&messages[0]), later(500), later(501)].concat();
    let fixture = Fixture::new();
    assert_eq!(converse(fixture.connect(), &bytes), (501, None));
    assert!(fixture.recorded() == bytes);
}

#[test]
fn silent_agents_are_disconnected() {
    let fixture = Fixture::with(Limits { silence: Duration::from_millis(20), ..Limits::default() });
    let mut agent = fixture.connect();
    agent.write_all(&small().framed()[0]).expect("server reads");
    assert_eq!(answers(agent), (1, Some("no complete message arrived in time; connect again".to_owned())));
}

#[test]
fn a_dictionary_has_a_limit() {
    let fixture = Fixture::with(Limits { dictionary_bytes: 10, ..Limits::default() });
    let (_, rejected) = answers_to(fixture.connect(), &small().bytes());
    assert_eq!(rejected.as_deref(), Some("the dictionary entries exceed 10 bytes; connect again"));
}

#[test]
fn a_fast_sender_is_slowed_down_and_loses_nothing() {
    let mut stream = small();
    for _ in 0..200 {
        stream.send(agent_message::Body::Heartbeat(Heartbeat { time_ns: 1 }));
    }
    let bytes = stream.bytes();
    let rate = bytes.len() as u64 / 2;
    let fixture = Fixture::with(Limits { bytes_per_second: rate, ..Limits::default() });
    let start = std::time::Instant::now();
    converse(fixture.connect(), &bytes);
    // Half of it may come at once, the rest takes a second at the agreed rate.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    assert!(fixture.recorded() == bytes);
}

#[test]
fn listening_beyond_the_loopback_interface_needs_tls_or_a_permission() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let start = |address: &str, access| {
        let destination = Destination::Directory(directory.path().to_owned());
        Server::start_for(access, &address.parse().expect("address"), destination, Limits::default())
    };
    let refused = |result: std::io::Result<Server>| result.err().map(|error| error.kind());
    use std::io::ErrorKind::{InvalidInput, PermissionDenied};
    assert_eq!(refused(start("0.0.0.0:0", Access::default())), Some(PermissionDenied));
    assert_eq!(refused(start("tls:0.0.0.0:0", Access::default())), Some(InvalidInput));
    assert_eq!(refused(start("0.0.0.0:0", Access { insecure: true, ..Access::default() })), None);
}

#[test]
fn tls_connections_are_served_and_plain_ones_do_no_harm() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (chain, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&chain, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let access = Access::default().with_certificate(&chain, &key).expect("fitting");
    let destination = Destination::File(directory.path().join("recording"));
    let address = "tls:127.0.0.1:0".parse().expect("address");
    let server = Server::start_for(access, &address, destination, Limits::default()).expect("server starts");
    let Address::Tls { host, port } = server.address().clone() else { panic!("a TLS address") };
    // One who does not speak TLS gets an alert or nothing, and the next one is served.
    let mut stranger = TcpStream::connect((host.as_str(), port)).expect("server listens");
    stranger.write_all(&small().bytes()).expect("server reads");
    stranger.shutdown(Shutdown::Write).expect("end of sending");
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);

    let mut stream = encrypted((host, port), &made.cert).expect("trusted");
    stream.write_all(&small().bytes()).expect("server reads");
    stream.conn.send_close_notify();
    stream.flush().expect("sent");
    let last = small().messages().len() as u64;
    assert_eq!(answers(&mut stream), (last, None));
    server.stop();
    assert!(std::fs::read(directory.path().join("recording")).expect("recording") == small().bytes());
}

/// Connects and trusts `certificate` alone.
fn encrypted(
    address: (String, u16),
    certificate: &rcgen::Certificate,
) -> std::io::Result<rustls::StreamOwned<rustls::ClientConnection, TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let session = rustls::ClientConnection::new(Arc::new(config), name).expect("session");
    let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(address)?);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

#[test]
fn a_certificate_that_changes_is_read_again() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (chain, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (first, second) = (make(), make());
    std::fs::write(&chain, first.cert.pem()).expect("written");
    std::fs::write(&key, first.signing_key.serialize_pem()).expect("written");
    let access = Access::default().with_certificate(&chain, &key).expect("fitting");
    let destination = Destination::Directory(directory.path().to_owned());
    let address = "tls:127.0.0.1:0".parse().expect("address");
    let server = Server::start_for(access, &address, destination, Limits::default()).expect("server starts");
    let Address::Tls { host, port } = server.address().clone() else { panic!("a TLS address") };
    let trusts = |certificate| encrypted((host.clone(), port), certificate).is_ok();
    assert_eq!((trusts(&first.cert), trusts(&second.cert)), (true, false));
    // Files are replaced one after the other, and a new chain with the old key is of no use.
    let replace = |path: &Path, text: String| {
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).expect("replaced");
    };
    replace(&chain, second.cert.pem());
    assert_eq!((trusts(&first.cert), trusts(&second.cert)), (true, false));
    replace(&key, second.signing_key.serialize_pem());
    assert_eq!((trusts(&first.cert), trusts(&second.cert)), (false, true));
    std::fs::remove_file(&chain).expect("removed");
    assert!(trusts(&second.cert));
}

#[test]
fn peers_that_never_introduce_themselves_are_closed() {
    let limits = Limits { hello: Duration::from_millis(20), ..Limits::default() };
    let fixture = Fixture::with(limits);
    let (_, rejected) = answers(fixture.connect());
    assert_eq!(rejected.as_deref(), Some("no Hello arrived in time; connect again"));
}

#[test]
fn an_address_in_use_is_not_taken_over() {
    let fixture = Fixture::new();
    let address = Address::Unix(fixture.directory.path().join("socket"));
    let destination = Destination::Directory(fixture.directory.path().to_owned());
    assert!(Server::start(&address, destination, Limits::default()).is_err());
    converse(fixture.connect(), &small().bytes());
    let recorded = fixture.recorded();
    assert!(RecordingReader::new(&recorded[..]).is_ok());
}
