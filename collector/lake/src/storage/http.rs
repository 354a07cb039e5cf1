//! HTTP for object storage, by the client of the command line.
//!
//! Problem: `object_store` brings reqwest, with a second TLS library and QUIC, which builds for minutes.
//! Approach: requests of the lake are whole files, so a blocking client on a thread of the runtime is enough.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Time limit of a request, with its answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Maximum bytes of an answer; files of a lake are smaller.
const ANSWER_BYTES: u64 = 4 << 30;

/// Makes HTTP clients.
#[derive(Debug)]
pub struct Connector;

#[derive(Debug)]
struct Client(ureq::Agent);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls())
            .build();
        Ok(HttpClient::new(Client(config.into())))
    }
}

/// Returns the configuration of TLS: the certificates that the system trusts, or those of `SSL_CERT_FILE`.
fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs();
    let roots = found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let agent = self.0.clone();
        let answer = tokio::task::spawn_blocking(move || send(&agent, parts, &body)).await;
        answer.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?
    }
}

fn send(
    agent: &ureq::Agent,
    parts: ureq::http::request::Parts,
    body: &[u8],
) -> Result<HttpResponse, HttpError> {
    let method = parts.method.clone();
    // A request of these methods has no body.
    let sent = if ["GET", "HEAD", "DELETE"].contains(&method.as_str()) && body.is_empty() {
        agent.run(ureq::http::Request::from_parts(parts, ()))
    } else {
        agent.run(ureq::http::Request::from_parts(parts, body))
    };
    let (parts, mut body) = sent.map_err(failure)?.into_parts();
    let bytes = body.with_config().limit(ANSWER_BYTES).read_to_vec().map_err(failure)?;
    Ok(HttpResponse::from_parts(parts, bytes.into()))
}

fn failure(error: ureq::Error) -> HttpError {
    let kind = match &error {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            HttpErrorKind::Connect
        }
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Request,
    };
    HttpError::new(kind, error)
}
