//! The HTTP server of a collector: JSON API, metrics, health, and the web UI.
//!
//! axum runs on its own runtime; each query is answered on a blocking thread, a few at a time, by [`profile::query`].
//! Everything is read only. [`connections`] limits the connections.
//! Invariant: every input is bounded, and every error is a JSON object with one line of text.
//!
//! Endpoints, parameters and responses: `docs/formats.md`.

mod access;
mod assets;
mod connections;
mod failure;
mod metrics;
mod pprof;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};

use crate::ingest::now_ns;
pub use access::Access;
use connections::Place;
use failure::Failure;
use metrics::Metrics;
pub use metrics::Probe;
use profile::api::question::{self, Answer};
use profile::query::error::QueryError;
use profile::source::SharedSource;
use profile::source::deadline::{CancelOnDrop, Deadline, WithDeadline};

/// Queries answered at the same time; more wait. Each may use a core and, over a large store, some 100 MB.
const QUERIES: usize = 4;

/// Maximum time for an answer, the wait for other queries included; the commands wait as long.
const ANSWER: Duration = Duration::from_secs(60);

/// Maximum length of a query string in bytes.
const QUERY_BYTES: usize = 16 << 10;

/// Responses from this length on are compressed if the client accepts it.
const COMPRESS_BYTES: usize = 1024;

/// Maximum time for responses in progress when the server stops.
const STOP: Duration = Duration::from_secs(5);

/// Parameters of a valid query string.
type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

struct Shared {
    source: SharedSource,
    probe: Probe,
    metrics: Metrics,
    questions: Arc<Semaphore>,
    /// Metrics are collected one at a time, independently of queries.
    scrapes: Arc<Semaphore>,
    access: Access,
    is_loopback: bool,
}

/// A running server; dropping it stops it.
pub struct HttpServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<oneshot::Receiver<()>>,
}

impl HttpServer {
    /// Serves `source` on `address`, which must be one of the loopback interface.
    ///
    /// # Errors
    /// As [`HttpServer::start_for`].
    pub fn start(address: SocketAddr, source: SharedSource, probe: Probe) -> io::Result<HttpServer> {
        HttpServer::start_for(Access::default(), address, source, probe)
    }

    /// Serves `source` on `address`, with access control.
    ///
    /// # Errors
    /// If listening on the address fails or threads cannot be started; `PermissionDenied` for an address beyond the
    /// loopback interface without a token or a permission.
    pub fn start_for(
        access: Access,
        address: SocketAddr,
        source: SharedSource,
        probe: Probe,
    ) -> io::Result<HttpServer> {
        if !access.permits(address) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "HTTP beyond the loopback interface is refused: pass --http-token-file, or --http-insecure behind a proxy",
            ));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("http")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let is_loopback = address.ip().is_loopback();
        if !is_loopback {
            let authentication = if access.token.is_some() { "" } else { " and without authentication" };
            tracing::warn!(%address, "HTTP is served beyond this machine without encryption{authentication}; put a proxy with TLS in front of it");
        }
        let metrics = Metrics::new().map_err(io::Error::other)?;
        let (questions, scrapes) = (Arc::new(Semaphore::new(QUERIES)), Arc::new(Semaphore::new(1)));
        let shared = Arc::new(Shared { source, probe, metrics, questions, scrapes, access, is_loopback });
        let (stop, stopped) = oneshot::channel();
        let (done, served) = oneshot::channel();
        runtime.spawn(async move {
            connections::serve(listener, router(shared), connections::Limits::default(), stopped).await;
            let _ = done.send(());
        });
        Ok(HttpServer { address, runtime: Some(runtime), stop: Some(stop), served: Some(served) })
    }

    /// Returns the address of the listener, with its actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Finishes responses in progress, then ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let (Some(stop), Some(served)) = (self.stop.take(), self.served.take()) {
            // It fails only if the server has ended.
            let _ = stop.send(());
            let in_time = runtime.block_on(async { tokio::time::timeout(STOP, served).await });
            if in_time.is_err() {
                tracing::warn!("the server stopped before all responses were complete");
            }
        }
        runtime.shutdown_timeout(Duration::from_millis(100));
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(document))
        .route("/ui/{name}", get(|Path(name): Path<String>| async move { assets::reply(&name, None) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .route("/debug/pprof/profile", get(pprof::profile))
        .route("/api/v1/{*question}", get(answer))
        .fallback(|| async { Failure::NotFound })
        .method_not_allowed_fallback(|| async { Failure::Method })
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// Paths that are answered without a token, for supervisors; the answers contain no data.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Refuses long query strings, foreign Host headers, requests without the token and too many connections, and adds
/// security headers to every response.
async fn guard(
    State(shared): State<Arc<Shared>>,
    Extension(place): Extension<Arc<Place>>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    if request.uri().query().is_some_and(|query| query.len() > QUERY_BYTES) {
        return Err(Failure::TooLong);
    }
    // Against DNS rebinding: the name of another site may resolve to this machine.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if shared.is_loopback && host.is_some_and(|host| !is_local(host)) {
        return Err(Failure::Host);
    }
    if !OPEN.contains(&request.uri().path()) {
        if !shared.access.admits(request.headers()) {
            return Err(Failure::Token);
        }
        if !place.admit() {
            return Err(Failure::Busy);
        }
    }
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self'; frame-ancestors 'none'",
        ),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ] {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(response)
}

fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

async fn document(State(shared): State<Arc<Shared>>) -> Result<Response, Failure> {
    assets::reply("index.html", shared.source.usual_time())
}

async fn ready(State(shared): State<Arc<Shared>>) -> Result<&'static str, Failure> {
    if let Some(error) = shared.probe.store.as_ref().and_then(|store| store.failing()) {
        return Err(Failure::NotReady(error));
    }
    if (shared.probe.agents)().has_ended { Err(Failure::NotListening) } else { Ok("ready\n") }
}

async fn metrics_text(State(shared): State<Arc<Shared>>) -> Result<Response, Failure> {
    let permits = Arc::clone(&shared.scrapes);
    let text = with_permit(permits, move || shared.metrics.text(&shared.probe));
    let text = text.await?.map_err(|_| Failure::Internal)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(question): Path<String>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Query(pairs) = pairs.map_err(|_| Failure::BadQuery)?;
    reply(shared, question, pairs, &headers).await
}

/// Answers a question of the API.
async fn reply(
    shared: Arc<Shared>,
    question: String,
    pairs: Vec<(String, String)>,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let accepts_gzip = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.split(',').any(|coding| coding.trim().starts_with("gzip")));
    let deadline = Deadline::at(Instant::now() + ANSWER);
    // Dropped with this future when the client disconnects.
    let _cancel = CancelOnDrop(deadline.clone());
    let work = with_permit(Arc::clone(&shared.questions), move || {
        let began = Instant::now();
        let source = WithDeadline::new(Arc::clone(&shared.source), deadline.clone());
        let answer = question::answer(&source, &question, &pairs, now_ns()).map_err(|error| match error {
            QueryError::Read(_) if deadline.is_over() => Failure::Late,
            error => Failure::Query(error),
        })?;
        shared.metrics.record(&answer, began.elapsed());
        body(answer, accepts_gzip)
    });
    tokio::time::timeout(ANSWER, work).await.map_err(|_| Failure::Late)??
}

/// Runs `work` on a blocking thread once a permit is free.
///
/// Work that has begun keeps its permit until it ends, even if the client disconnects.
async fn with_permit<T: Send + 'static>(
    permits: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let permit = permits.acquire_owned().await.map_err(|_| Failure::Internal)?;
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    work.await.map_err(|_| Failure::Internal)
}

fn body(answer: Answer, accepts_gzip: bool) -> Result<Response, Failure> {
    let content = [(header::CONTENT_TYPE, answer.content_type)];
    if !accepts_gzip || answer.bytes.len() < COMPRESS_BYTES {
        return Ok((content, answer.bytes).into_response());
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let packed = io::Write::write_all(&mut encoder, &answer.bytes).and_then(|()| encoder.finish());
    let packed = packed.map_err(|_| Failure::Internal)?;
    Ok((content, [(header::CONTENT_ENCODING, "gzip"), (header::VARY, "accept-encoding")], packed)
        .into_response())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ops::Range;

    use axum::http::StatusCode;
    use profile::dictionary::Dictionary;
    use profile::session::Session;
    use profile::source::{Extent, Kind, Part, ReadError, Row, Scope, Source};
    use proto::framing::FramingError;

    use super::*;

    #[test]
    fn a_failing_store_is_not_ready() {
        let response = Failure::NotReady(crate::store::StoreError::Full).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    /// A store that is read until the query is over; sends when reading begins and ends.
    struct Endless(std::sync::mpsc::SyncSender<&'static str>);

    impl Source for Endless {
        fn parts(&self) -> Vec<Box<dyn Part + '_>> {
            vec![Box::new(self)]
        }

        fn end_ns(&self) -> Option<u64> {
            None
        }

        fn cut(&self) -> Option<FramingError> {
            None
        }
    }

    impl Part for &Endless {
        fn range_ns(&self) -> Range<u64> {
            0..u64::MAX
        }

        fn has_samples(&self) -> bool {
            true
        }

        fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
            read(&Dictionary::unlimited());
            Ok(())
        }

        fn sessions(
            &self,
            _: Extent,
            is_selected: &dyn Fn(u64) -> bool,
            _: &mut dyn FnMut(u64, &Session),
        ) -> Result<(), ReadError> {
            self.0.send("begun").expect("the test listens");
            while is_selected(1) {
                std::thread::yield_now();
            }
            self.0.send("ended").expect("the test listens");
            Ok(())
        }

        fn read(&self, _: &Scope<'_>, _: Kind<'_>, _: &mut dyn FnMut(Row)) -> Result<(), ReadError> {
            Ok(())
        }
    }

    #[test]
    fn a_query_ends_when_its_client_disconnects() {
        let (send, events) = std::sync::mpsc::sync_channel(2);
        let source = Arc::new(Endless(send));
        let address = "127.0.0.1:0".parse().expect("address");
        let server = HttpServer::start(address, source, Probe::default()).expect("server starts");
        let mut asker = std::net::TcpStream::connect(server.address()).expect("server listens");
        asker.write_all(b"GET /api/v1/processes HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("server reads");
        assert_eq!(events.recv(), Ok("begun"));
        drop(asker);
        // Far less than the deadline of the question.
        assert_eq!(events.recv_timeout(ANSWER / 2), Ok("ended"));
        server.stop();
    }

    #[test]
    fn a_query_ends_at_its_deadline() {
        let (send, events) = std::sync::mpsc::sync_channel(2);
        let source = Endless(send);
        let source = WithDeadline::new(Arc::new(source), Deadline::at(Instant::now()));
        let answer = question::answer(&source, "processes", &[], 0);
        assert!(matches!(answer, Err(QueryError::Read(_))));
        assert_eq!(events.iter().take(2).collect::<Vec<_>>(), ["begun", "ended"]);
        assert_eq!(Failure::Late.into_response().status(), StatusCode::GATEWAY_TIMEOUT);
    }

    /// Clients that disconnect cannot cause more concurrent work than there are permits.
    #[tokio::test]
    async fn a_permit_is_held_until_the_work_ends_although_the_client_is_gone() {
        let permits = Arc::new(Semaphore::new(1));
        let (begun, has_begun) = oneshot::channel();
        let (finish, may_finish) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn(with_permit(Arc::clone(&permits), move || {
            begun.send(()).expect("waited for");
            may_finish.recv()
        }));
        has_begun.await.expect("begun");
        first.abort();
        assert!(first.await.expect_err("gone").is_cancelled());
        assert_eq!(permits.available_permits(), 0, "the work goes on and keeps its permit");
        finish.send(()).expect("still at work");
        assert_eq!(with_permit(Arc::clone(&permits), || 7).await.expect("a permit"), 7);
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for (host, expected) in [
            ("localhost:4171", true),
            ("127.0.0.1:4171", true),
            ("127.0.0.1", true),
            ("[::1]:4171", true),
            ("evil.example:4171", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }
}
