//! Connections of the HTTP server: how many at a time, and how long each may wait.
//!
//! Problem: whoever can reach the port can open connections and leave them half asked or half answered, until there is
//! no descriptor or memory left for anybody else.
//! Approach: a connection is accepted when there is a place for it, others wait with the system; a request has to be
//! whole in time, which also ends connections that ask nothing; the system gives a peer up that does not take its
//! answer (`TCP_USER_TIMEOUT`, which covers closed receive windows since Linux 4.x: tcp(7), `tcp_probe_timer`); and a
//! connection that has lived long enough ends after the answer under way, for who asks on and on could stay for ever.
//! Invariant: a place is free again after twice [`Limits::life`], whatever the peer does; answers are bounded by the
//! questions that may be put.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// Pause after an accept that failed: usually there are no descriptors left, and trying on at once would not free one.
const RETRY: Duration = Duration::from_millis(100);

/// Longest request line and headers together, in bytes; beyond it hyper answers 431. Query strings have 16 KiB.
const HEAD_BYTES: usize = 64 << 10;

/// What clients may take up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at the same time, at least one; more wait until one ends.
    pub(super) connections: usize,
    /// From the first moment, or from the answer before, until a request's headers are whole.
    pub(super) request: Duration,
    /// How long a peer may take nothing of an answer that is under way.
    pub(super) unread: Duration,
    /// How long a connection may go on; an answer that is under way then may take as long again.
    pub(super) life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 256,
            request: Duration::from_secs(15),
            unread: Duration::from_secs(30),
            life: Duration::from_secs(300),
        }
    }
}

/// Serves until `stopped`, then ends what is idle and waits for the answers under way.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut stopped: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopping) = watch::channel(());
    loop {
        let accepted = tokio::select! {
            // An error means that the server was dropped, which is a way to stop it.
            _ = &mut stopped => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok(Some((stream, place))) => {
                tokio::spawn(converse(stream, router.clone(), limits, stopping.clone(), place));
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    drop((listener, stop));
    // All places are free when the last connection has ended; an error would say that they are gone for good.
    let _ = places.acquire_many(u32::try_from(limits.connections).unwrap_or(u32::MAX)).await;
}

/// The next connection, once there is a place for it; `None` if there never will be.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<Option<(TcpStream, OwnedSemaphorePermit)>> {
    let Ok(place) = Arc::clone(places).acquire_owned().await else { return Ok(None) };
    let (stream, _) = listener.accept().await?;
    Ok(Some((stream, place)))
}

async fn converse(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<()>,
    place: OwnedSemaphorePermit,
) {
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.unread)) {
        tracing::warn!(%error, "an HTTP connection without a time limit for its reader is not served");
        return;
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.life, connection).await
        }
        () = tokio::time::sleep(limits.life) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(limits.life, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection"),
        Err(_) => tracing::debug!("HTTP connection cut off: its answer was not taken in time"),
    }
    drop(place);
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use axum::routing::get;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// Longer than anything here takes, on any machine.
    const LONG: Duration = Duration::from_secs(300);
    /// What is waited for, and long enough for a client that does what it should at once.
    const SHORT: Duration = Duration::from_secs(1);

    struct Served {
        address: SocketAddr,
        runtime: Runtime,
        stop: oneshot::Sender<()>,
        done: oneshot::Receiver<()>,
    }

    impl Served {
        /// One connection at a time, so that one that hangs is felt by the next.
        fn with(limits: Limits) -> Served {
            let limits = Limits { connections: 1, ..limits };
            let runtime =
                Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
            let address = listener.local_addr().expect("bound");
            let router = Router::new()
                .route("/", get(|| async { "here\n" }))
                .route("/long", get(|| async { vec![b'x'; 16 << 20] }));
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
            assert!(answer(&mut self.connect()).ends_with("here\n"));
        }

        fn stop(self) {
            self.stop.send(()).expect("running");
            let ended = self.runtime.block_on(async { tokio::time::timeout(LONG, self.done).await });
            assert!(matches!(ended, Ok(Ok(()))), "the server does not end");
        }
    }

    fn ask(stream: &mut TcpStream) {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
    }

    /// Asks, and reads one answer without closing.
    fn answer(stream: &mut TcpStream) -> String {
        ask(stream);
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(b"here\n") {
            stream.read_exact(&mut byte).expect("an answer");
            text.push(byte[0]);
        }
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn more_connections_than_places_wait() {
        let served = Served::with(Limits { request: LONG, ..Limits::default() });
        let mut first = served.connect();
        answer(&mut first);
        let mut second = served.connect();
        ask(&mut second);
        // A server that served the second would have done so while it answers the first over and over.
        for _ in 0..200 {
            answer(&mut first);
        }
        second.set_nonblocking(true).expect("a socket");
        let early = second.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(early, Err(ErrorKind::WouldBlock));
        second.set_nonblocking(false).expect("a socket");
        drop(first);
        assert!(matches!(second.read(&mut [0; 64]), Ok(1..)), "the place is free now");
    }

    #[test]
    fn headers_that_drip_are_not_waited_for() {
        let served = Served::with(Limits { request: SHORT, ..Limits::default() });
        let mut slow = served.connect();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").expect("server reads");
        slow.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        // A byte each 20 ms would go on for minutes.
        let closed = (0..5000).any(|_| {
            let is_refused = slow.write_all(b"x").is_err();
            let read = slow.read(&mut [0; 512]).map_err(|error| error.kind());
            is_refused || !matches!(read, Err(ErrorKind::WouldBlock) | Ok(1..))
        });
        assert!(closed, "the connection is kept open for ever");
        served.check_serves();
    }

    #[test]
    fn who_asks_nothing_makes_room() {
        let served = Served::with(Limits { request: SHORT, ..Limits::default() });
        let silent = served.connect();
        let mut idle = served.connect();
        answer(&mut idle);
        served.check_serves();
        assert_eq!(idle.read(&mut [0]).expect("an end, not a timeout"), 0);
        drop(silent);
    }

    #[test]
    fn who_asks_on_and_on_makes_room() {
        let served = Served::with(Limits { request: LONG, life: SHORT, ..Limits::default() });
        let mut busy = served.connect();
        let mut byte = [0];
        // Each answer is read to its end; the last one says that the connection closes, or is followed by its end.
        let is_closed = (0..1_000_000).any(|_| {
            let is_refused = busy.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err();
            let mut text = Vec::new();
            while !is_refused && !text.ends_with(b"here\n") && matches!(busy.read(&mut byte), Ok(1)) {
                text.push(byte[0]);
            }
            !text.ends_with(b"here\n")
        });
        assert!(is_closed, "the connection goes on for ever");
        served.check_serves();
    }

    #[test]
    fn who_sips_the_answer_makes_room() {
        let served = Served::with(Limits { unread: LONG, life: SHORT, ..Limits::default() });
        let mut slow = served.connect();
        slow.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
        assert_eq!(slow.read(&mut [0]).expect("the answer begins"), 1);
        // The next one waits until then, and fails after minutes.
        served.check_serves();
        drop(slow);
    }

    #[test]
    fn who_does_not_read_the_answer_makes_room() {
        let served = Served::with(Limits { unread: SHORT, ..Limits::default() });
        let mut deaf = served.connect();
        deaf.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
        served.check_serves();
        drop(deaf);
    }

    #[test]
    fn headers_have_a_length() {
        let served = Served::with(Limits::default());
        let mut stream = served.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nX: ").expect("server reads");
        let line = vec![b'x'; 2 * HEAD_BYTES];
        // The server may close before it has everything.
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
        answer(&mut idle);
        served.stop();
        assert!(matches!(idle.read(&mut [0]), Ok(0)));
    }
}
