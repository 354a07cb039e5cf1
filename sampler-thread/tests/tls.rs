//! Delivery over TLS: the collector's certificate is checked, and messages arrive unchanged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::framing::{FrameDecoder, encode_frame};
use proto::v1::{
    Acknowledgement, AgentMessage, CollectorMessage, Goodbye, Hello, agent_message::Body, collector_message,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sampler_thread::send::delivery::{Delivery, Limits, Target, TlsError};
use sampler_thread::send::sink::Sink;

/// Writes a certificate for `name` to `path`; returns the configuration of a server that uses it.
fn certificate(name: &str, path: &Path) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    std::fs::write(path, made.cert.pem()).expect("written");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        builder.expect("versions").with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    Arc::new(config.expect("fitting certificate and key"))
}

/// Serves one connection until `Goodbye` and acknowledges every message; returns the messages.
fn serve(listener: &TcpListener, config: Arc<ServerConfig>) -> std::io::Result<Vec<AgentMessage>> {
    let (socket, _) = listener.accept()?;
    let session = ServerConnection::new(config).expect("session");
    let mut stream: StreamOwned<ServerConnection, TcpStream> = StreamOwned::new(session, socket);
    let mut decoder = FrameDecoder::new();
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some(message) = decoder.next::<AgentMessage>().expect("well-formed") {
            let acknowledgement = Acknowledgement { sequence: message.sequence };
            let body = Some(collector_message::Body::Acknowledgement(acknowledgement));
            let mut bytes = Vec::new();
            encode_frame(&CollectorMessage { body }, &mut bytes).expect("small");
            stream.write_all(&bytes)?;
            stream.flush()?;
            let last = matches!(message.body, Some(Body::Goodbye(_)));
            received.push(message);
            if last {
                return Ok(received);
            }
        }
        let length = stream.read(&mut buffer)?;
        assert!(length > 0, "the agent closed the connection");
        decoder.push(&buffer[..length]);
    }
}

/// Longest silence of a collector at the end; beyond any delay of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn begin(target: Target) -> Delivery {
    let limits = Limits { window: 1 << 20, end_silence: PATIENCE, abandon: None };
    let mut delivery = Delivery::new(target, "secret".to_owned(), limits, Box::new(|_| {})).expect("pipe");
    delivery.send(&Body::Hello(Hello::default())).expect("begun");
    delivery.send(&Body::Goodbye(Goodbye { reason: "x".repeat(200_000) })).expect("sent");
    delivery
}

#[test]
fn a_collector_with_a_trusted_certificate_receives_all_messages() {
    let directory = tempfile::tempdir().expect("tempdir");
    let roots = directory.path().join("cert.pem");
    let config = certificate("localhost", &roots);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = format!("localhost:{}", listener.local_addr().expect("address").port());
    let mut delivery = begin(Target::tls(&address, Some(&roots)).expect("target"));
    let received = serve(&listener, config).expect("served");
    delivery.finish().expect("delivered");
    let last = received.last().expect("messages");
    let Some(Body::Goodbye(goodbye)) = &last.body else { panic!("{last:?}") };
    assert_eq!(goodbye.reason.len(), 200_000);
}

#[test]
fn a_collector_with_an_untrusted_certificate_is_refused() {
    let directory = tempfile::tempdir().expect("tempdir");
    let own = directory.path().join("own.pem");
    let trusted = directory.path().join("trusted.pem");
    let config = certificate("localhost", &own);
    certificate("localhost", &trusted);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = format!("localhost:{}", listener.local_addr().expect("address").port());
    let mut delivery = begin(Target::tls(&address, Some(&trusted)).expect("target"));
    assert!(serve(&listener, config).is_err(), "the agent accepted an untrusted certificate");
    drop(listener);
    delivery.finish().expect("no error");
    assert_eq!(delivery.delivery().expect("facts").connections, 0);
}

#[test]
fn a_file_without_certificates_is_an_error() {
    let error = Target::tls("localhost:1", Some(Path::new("/dev/null"))).err().expect("no certificate");
    assert!(matches!(error, TlsError::NoCertificate(_)), "{error}");
    let error = Target::tls("localhost:1", Some(Path::new("/nowhere"))).err().expect("no file");
    assert!(error.to_string().starts_with("cannot read /nowhere: "), "{error}");
    assert!(matches!(Target::tls("a b:1", None), Err(TlsError::BadName(_))));
}
