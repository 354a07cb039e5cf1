//! `/readyz` and metrics of servers whose threads have ended.

use crate::support;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::support::small;
use collector::address::Address;
use collector::http::{Access, HttpServer, Probe};
use collector::ingest::{Destination, Limits, Server};
use collector::store::{Follower, Retention, Store, StoredSamples};
use tempfile::TempDir;

/// A collector with a store, an HTTP server and a socket for agents.
struct Fixture {
    server: Server,
    http: HttpServer,
    store: Arc<Store>,
    directory: TempDir,
}

impl Fixture {
    fn with(limits: Limits) -> Fixture {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store = Store::open(&directory.path().join("store"), Retention::default()).expect("new store");
        let store = Arc::new(store);
        let address = Address::Unix(directory.path().join("socket"));
        let destination = Destination::Store(Arc::clone(&store));
        let server = Server::start(&address, destination, limits).expect("server starts");
        let agents = server.stop_handle();
        let probe = Probe {
            store: Some(Arc::clone(&store)),
            agents: Arc::new(move || agents.health()),
            ..Probe::default()
        };
        let address = "127.0.0.1:0".parse().expect("address");
        let http = HttpServer::start(address, store.clone(), probe).expect("server starts");
        Fixture { server, http, store, directory }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http.address()).expect("server listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }

    /// Requests `path` until the answer contains `text`: threads end a moment after their last visible act.
    fn await_answer(&self, path: &str, text: &str) {
        let mut answers = std::iter::repeat_with(|| self.get(path)).take(2000);
        assert!(answers.any(|answer| answer.contains(text)), "{}: no {text:?}", self.get(path));
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.directory.path().join("socket")).expect("server listens");
        // Far longer than any answer takes; a connection that is not served must not block the test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    /// Reads until the server closes the connection.
    fn rest(mut stream: UnixStream) -> String {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the server closes the connection");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

#[derive(Debug)]
struct Panicking;

impl Follower for Panicking {
    fn follow(&self, _: StoredSamples) {
        panic!("a test ends the writer");
    }
}

#[test]
fn a_collector_whose_writer_ended_is_not_ready() {
    let fixture = Fixture::with(Limits::default());
    assert!(fixture.get("/readyz").contains("200 OK"));
    fixture.store.follow(Arc::new(Panicking)).expect("the first follower");
    let mut agent = fixture.connect();
    agent.write_all(&small().bytes()).expect("server reads");
    fixture.await_answer("/readyz", "503");
    assert!(fixture.get("/readyz").contains("the writer of the store has ended; restart the collector"));
    assert!(fixture.get("/metrics").contains("tickwalk_storage_failing 1"));
    assert!(fixture.get("/healthz").contains("200 OK"));
    drop(agent);
    let mut later = fixture.connect();
    later.write_all(&small().framed()[0]).expect("server reads");
    assert!(Fixture::rest(later).contains("the writer of the store has ended"));
}

#[test]
fn a_collector_whose_listener_ended_is_not_ready() {
    let fixture = Fixture::with(Limits::default());
    assert!(fixture.get("/metrics").contains("tickwalk_agents_listening 1"));
    fixture.server.stop_handle().stop();
    fixture.await_answer("/readyz", "503");
    assert!(fixture.get("/readyz").contains("the listener has ended"));
    assert!(fixture.get("/metrics").contains("tickwalk_agents_listening 0"));
}

#[test]
fn a_panic_ends_its_connection_frees_its_place_and_is_counted() {
    // The sum of the present and the longest duration overflows, in the thread of each connection.
    let fixture = Fixture::with(Limits { connections: 1, hello: Duration::MAX, ..Limits::default() });
    for count in 1..=3 {
        assert_eq!(Fixture::rest(fixture.connect()), "");
        fixture.await_answer("/metrics", &format!("tickwalk_connections_panicked_total {count}\n"));
    }
    assert!(fixture.get("/metrics").contains("tickwalk_agents_connected 0\n"));
}

#[test]
fn refused_connections_are_counted() {
    let fixture = Fixture::with(Limits { connections: 1, ..Limits::default() });
    let hello = |session| support::Stream::of_session(session).framed()[0].clone();
    let mut first = fixture.connect();
    first.write_all(&hello(1)).expect("server reads");
    first.read_exact(&mut [0]).expect("it is served");
    let mut second = fixture.connect();
    second.write_all(&hello(2)).expect("server reads");
    assert!(Fixture::rest(second).contains("maximum of 1 connections"));
    assert!(fixture.get("/metrics").contains("tickwalk_connections_refused_total 1\n"));
    drop(first);
}

/// Sends a request with these headers besides `Host`; returns status line and body.
fn ask(http: &HttpServer, path: &str, host: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", http.address().port())).expect("server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn http_beyond_the_loopback_interface_needs_a_token_or_a_permission() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(Store::open(directory.path(), Retention::default()).expect("new store"));
    let start = |address: &str, access| {
        HttpServer::start_for(access, address.parse().expect("address"), store.clone(), Probe::default())
    };
    let refused = start("0.0.0.0:0", Access::default()).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::PermissionDenied));
    let open = start("0.0.0.0:0", Access { insecure: true, ..Access::default() }).expect("permitted");
    assert!(ask(&open, "/metrics", "collector.example", "").starts_with("HTTP/1.1 200"));
    let access = Access { token: Some("sesame".into()), ..Access::default() };
    for address in ["0.0.0.0:0", "127.0.0.1:0"] {
        let http = start(address, access.clone()).expect("a token permits it");
        // "tickwalk:sesame" and "tickwalk:seaside" in base64.
        let [right, wrong] = ["dGlja3dhbGs6c2VzYW1l", "dGlja3dhbGs6c2Vhc2lkZQ=="];
        for (header, is_admitted) in [
            ("Authorization: Bearer sesame\r\n".to_owned(), true),
            (format!("Authorization: Basic {right}\r\n"), true),
            ("".to_owned(), false),
            ("Authorization: Bearer\r\n".to_owned(), false),
            ("Authorization: Bearer seaside\r\n".to_owned(), false),
            (format!("Authorization: Basic {wrong}\r\n"), false),
            ("Authorization: Basic sesame\r\n".to_owned(), false),
            ("Authorization: Digest sesame\r\n".to_owned(), false),
        ] {
            for path in ["/", "/metrics", "/api/v1/processes"] {
                let answer = ask(&http, path, "localhost", &header);
                let status = if is_admitted { "HTTP/1.1 200" } else { "HTTP/1.1 401" };
                assert!(answer.starts_with(status), "{path} {header}: {answer}");
                assert_eq!(answer.contains("www-authenticate: Basic"), !is_admitted, "{answer}");
            }
            assert!(ask(&http, "/healthz", "localhost", &header).starts_with("HTTP/1.1 200"));
            assert!(ask(&http, "/readyz", "localhost", &header).starts_with("HTTP/1.1 200"));
        }
    }
    let http = start("127.0.0.1:0", access).expect("a token permits it");
    let answer = ask(&http, "/metrics", "evil.example", "Authorization: Bearer sesame\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "the guard stays: {answer}");
}
