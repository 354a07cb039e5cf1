//! Connections of the HTTP server: their number, and time limits for each.
//!
//! A peer could open connections and leave requests or responses incomplete until the process has no file descriptors
//! or memory left. So the number of connections is limited (`crate::places`), and a request must be complete in time,
//! which also closes idle connections. The kernel closes a connection whose peer does not read the response
//! (`TCP_USER_TIMEOUT`, which covers closed receive windows since Linux 4.x: tcp(7), `tcp_probe_timer`). A connection
//! ends after [`Limits::life`] and the response in progress, however active it is.
//! Invariant: a place is free again after twice [`Limits::life`]; the queries bound the length of responses.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};

use crate::places::Places;

/// Pause after a failed accept: usually the process has run out of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Maximum length of request line and headers together, in bytes; hyper answers longer ones with 431. Query strings
/// have up to 16 KiB.
const HEAD_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of connections with a request that was answered; more are refused.
    pub(super) connections: usize,
    /// Maximum number of other connections; the next one takes the place of the oldest.
    pub(super) unknown: usize,
    /// Maximum time from the start, or the previous response, until a request's headers are complete.
    pub(super) request: Duration,
    /// Maximum time in which the peer reads nothing of a response.
    pub(super) unread: Duration,
    /// Maximum duration of a connection; a response in progress then may take as long again.
    pub(super) life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 256,
            unknown: 64,
            request: Duration::from_secs(15),
            unread: Duration::from_secs(30),
            life: Duration::from_secs(300),
        }
    }
}

/// The place of a connection; drop frees it.
pub(super) struct Place {
    id: u64,
    places: Arc<Mutex<Places<oneshot::Sender<()>>>>,
}

impl Place {
    /// Gives the connection a place among the admitted ones; returns false if all of them are taken.
    pub(super) fn admit(&self) -> bool {
        self.places.lock().admit(self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.id);
    }
}

/// Serves until `stopped`, then closes idle connections and waits for responses in progress.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut stopped: oneshot::Receiver<()>,
) {
    let places = Arc::new(Mutex::new(Places::new(limits.unknown, limits.connections)));
    let mut last_id = 0;
    let (stop, stopping) = watch::channel(());
    // Every connection has a sender; when all are gone, the last one has ended.
    let (serving, mut served) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            // An error means that the server was dropped, which stops it as well.
            _ = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                last_id += 1;
                let (close, closed) = oneshot::channel();
                if let Some((_, oldest)) = places.lock().add(last_id, close) {
                    // It may have ended meanwhile.
                    let _ = oldest.send(());
                }
                let place = Place { id: last_id, places: Arc::clone(&places) };
                let router = router.clone().layer(Extension(Arc::new(place)));
                let connection = serve_one(stream, router, limits, stopping.clone(), closed);
                let serving = serving.clone();
                tokio::spawn(async move {
                    connection.await;
                    drop(serving);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    drop((listener, stop, serving));
    // No message is ever sent on it.
    let _ = served.recv().await;
}

async fn serve_one(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<()>,
    closed: oneshot::Receiver<()>,
) {
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.unread)) {
        tracing::warn!(%error, "HTTP connection refused: its time limit for unread responses cannot be set");
        return;
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let is_time_to_end = async {
        tokio::select! {
            _ = stopping.changed() => {}
            () = tokio::time::sleep(limits.life) => {}
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        Ok(()) = closed => {
            tracing::debug!("HTTP connection closed for a newer one: it sent no request with the token");
            return;
        }
        () = is_time_to_end => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.life, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection"),
        Err(_) => tracing::debug!("HTTP connection closed: the peer did not read the response in time"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    use axum::routing::get;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// Longer than any step of these tests takes.
    const LONG: Duration = Duration::from_secs(300);
    /// The limit under test; long enough for a client that acts at once.
    const SHORT: Duration = Duration::from_secs(1);

    struct Served {
        address: SocketAddr,
        runtime: Runtime,
        stop: oneshot::Sender<()>,
        done: oneshot::Receiver<()>,
    }

    impl Served {
        /// Serves with these limits and one place for requests of `/` and `/long`, so that a blocked one blocks the
        /// next.
        fn with(limits: Limits) -> Served {
            let limits = Limits { connections: 1, ..limits };
            let runtime =
                Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
            let address = listener.local_addr().expect("bound");
            let admit = |Extension(place): Extension<Arc<Place>>| async move {
                if place.admit() { "here\n" } else { "busy\n" }
            };
            let long = |Extension(place): Extension<Arc<Place>>| async move {
                assert!(place.admit(), "the place is free");
                vec![b'x'; 16 << 20]
            };
            let router = Router::new()
                .route("/", get(admit))
                .route("/open", get(|| async { "here\n" }))
                .route("/long", get(long));
            let (stop, stopped) = oneshot::channel();
            let (ended, done) = oneshot::channel();
            runtime.spawn(async move {
                serve(listener, router, limits, stopped).await;
                let _ = ended.send(());
            });
            Served { address, runtime, stop, done }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).expect("server listens");
            stream.set_read_timeout(Some(LONG)).expect("a timeout");
            stream
        }

        fn check_serves(&self) {
            assert!(answer(&mut self.connect(), "/open").ends_with("here\n"));
        }

        /// Waits until the place of an admitted connection is free.
        fn await_place(&self) {
            let deadline = Instant::now() + LONG;
            while !answer(&mut self.connect(), "/").ends_with("here\n") {
                assert!(Instant::now() < deadline, "the place is taken for ever");
            }
        }

        fn stop(self) {
            self.stop.send(()).expect("running");
            let ended = self.runtime.block_on(async { tokio::time::timeout(LONG, self.done).await });
            assert!(matches!(ended, Ok(Ok(()))), "the server does not end");
        }
    }

    fn ask(stream: &mut TcpStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("server reads");
    }

    /// Sends a request and reads the response; the connection stays open.
    fn answer(stream: &mut TcpStream, path: &str) -> String {
        ask(stream, path);
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(b"here\n") && !text.ends_with(b"busy\n") {
            stream.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8(text).expect("text")
    }

    /// Silent connections, and those with requests of open paths only, delay neither each other nor admitted ones.
    #[test]
    fn the_oldest_unknown_connection_is_closed_for_a_newer_one() {
        let served = Served::with(Limits { request: LONG, life: LONG, unknown: 2, ..Limits::default() });
        let mut known = served.connect();
        assert!(answer(&mut known, "/").ends_with("here\n"));
        let mut silent: Vec<TcpStream> = Vec::new();
        for _ in 0..100 {
            silent.push(served.connect());
            served.check_serves();
        }
        // The first ones are closed; the admitted one is not.
        assert_eq!(silent[0].read(&mut [0]).expect("an end, not a timeout"), 0);
        assert!(answer(&mut known, "/").ends_with("here\n"));
    }

    #[test]
    fn connections_beyond_the_limit_are_refused_and_open_paths_are_answered() {
        let served = Served::with(Limits { request: LONG, ..Limits::default() });
        let mut first = served.connect();
        assert!(answer(&mut first, "/").ends_with("here\n"));
        assert!(answer(&mut served.connect(), "/").ends_with("busy\n"));
        served.check_serves();
        drop(first);
        served.await_place();
    }

    #[test]
    fn slow_headers_time_out() {
        let served = Served::with(Limits { request: SHORT, ..Limits::default() });
        let mut slow = served.connect();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").expect("server reads");
        slow.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        // At one byte each 20 ms the loop would take minutes.
        let closed = (0..5000).any(|_| {
            let is_refused = slow.write_all(b"x").is_err();
            let read = slow.read(&mut [0; 512]).map_err(|error| error.kind());
            is_refused || !matches!(read, Err(ErrorKind::WouldBlock) | Ok(1..))
        });
        assert!(closed, "the connection stays open");
        served.check_serves();
    }

    #[test]
    fn idle_connections_are_closed() {
        let served = Served::with(Limits { request: SHORT, ..Limits::default() });
        let silent = served.connect();
        let mut idle = served.connect();
        answer(&mut idle, "/");
        for mut closed in [&silent, &idle] {
            assert_eq!(closed.read(&mut [0]).expect("an end, not a timeout"), 0);
        }
        served.await_place();
    }

    #[test]
    fn busy_connections_end_after_their_life() {
        let served = Served::with(Limits { request: LONG, life: SHORT, ..Limits::default() });
        let mut busy = served.connect();
        let mut byte = [0];
        // Each response is read to its end; after the last one the connection is closed.
        let is_closed = (0..1_000_000).any(|_| {
            let is_refused = busy.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err();
            let mut text = Vec::new();
            while !is_refused && !text.ends_with(b"here\n") && matches!(busy.read(&mut byte), Ok(1)) {
                text.push(byte[0]);
            }
            !text.ends_with(b"here\n")
        });
        assert!(is_closed, "the connection stays open");
        served.await_place();
    }

    #[test]
    fn slow_readers_end_after_their_life() {
        let served = Served::with(Limits { unread: LONG, life: SHORT, ..Limits::default() });
        let mut slow = served.connect();
        slow.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
        assert_eq!(slow.read(&mut [0]).expect("the answer begins"), 1);
        served.await_place();
        drop(slow);
    }

    #[test]
    fn unread_responses_time_out() {
        let served = Served::with(Limits { unread: SHORT, ..Limits::default() });
        let mut silent = served.connect();
        silent.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
        assert_eq!(silent.read(&mut [0]).expect("the answer begins"), 1);
        served.await_place();
        drop(silent);
    }

    #[test]
    fn long_headers_are_refused() {
        let served = Served::with(Limits::default());
        let mut stream = served.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nX: ").expect("server reads");
        let line = vec![b'x'; 2 * HEAD_BYTES];
        // The server may close before it has read everything.
        let _ = stream.write_all(&line);
        let mut status = [0; 12];
        match stream.read_exact(&mut status) {
            Ok(()) => assert_eq!(&status, b"HTTP/1.1 431"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        drop(stream);
        served.check_serves();
    }

    #[test]
    fn a_stop_ends_idle_connections_at_once() {
        let served = Served::with(Limits { request: LONG, ..Limits::default() });
        let mut idle = served.connect();
        answer(&mut idle, "/");
        served.stop();
        assert!(matches!(idle.read(&mut [0]), Ok(0)));
    }
}
