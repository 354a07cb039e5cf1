//! Delivery to one receiver: one request at a time, repeated while its errors are temporary.
//!
//! Source: OTLP specification 1.5 and later, "Failures", "Retryable Response Codes" and "Profiles Development Version";
//! google.rpc.RetryInfo.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{AsciiMetadataValue, KeyAndValueRef, MetadataMap};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::outbox::{Batch, Cause, Outbox};
use super::settings::Settings;

/// Metadata with the version of the messages, while they are in development. A receiver of other versions answers
/// `INVALID_ARGUMENT`, which is final.
const VERSION: &str = "otlp-profiles-development-version";

/// Result of an attempt.
enum Outcome {
    Delivered,
    /// A temporary error, and the delay that the receiver demands, if any.
    Retry(Option<Duration>, Status),
    Failed(Cause, String),
}

/// Sends the batches of `outbox` until it is closed and empty.
pub(super) async fn run(
    address: String,
    channel: Channel,
    headers: MetadataMap,
    outbox: Arc<Outbox>,
    settings: Settings,
) {
    let mut client = ProfilesServiceClient::new(channel).send_compressed(CompressionEncoding::Gzip);
    let mut failures = 0;
    while let Some(batch) = outbox.next().await {
        match attempt(&mut client, &headers, &batch, settings.timeout).await {
            Outcome::Delivered => {
                if failures > 0 {
                    tracing::info!(%address, "the receiver accepts profiles again");
                }
                failures = 0;
                outbox.delivered(batch.amount);
            }
            Outcome::Retry(delay, status) => {
                if failures == 0 {
                    tracing::warn!(%address, code = %status.code(), reason = status.message(), "the receiver does not accept profiles; they wait and are sent again");
                }
                failures += 1;
                outbox.put_back(batch);
                let wait = tokio::time::sleep(delay.unwrap_or_else(|| pause(&settings, failures)));
                // When the outbox closes, the next attempt is made at once: little time is left.
                tokio::select! {
                    () = wait => {}
                    () = outbox.closed(), if delay.is_none() && !outbox.is_closed() => failures = 0,
                }
            }
            Outcome::Failed(cause, reason) => {
                tracing::warn!(%address, cause = cause.name(), samples = batch.amount.samples, %reason, "the receiver refused a profile, which is dropped");
                failures = 0;
                outbox.dropped(batch.amount, cause);
            }
        }
    }
}

async fn attempt(
    client: &mut ProfilesServiceClient<Channel>,
    headers: &MetadataMap,
    batch: &Batch,
    timeout: Duration,
) -> Outcome {
    let mut request = Request::new((*batch.request).clone());
    request.metadata_mut().insert(VERSION, AsciiMetadataValue::from_static("1"));
    for header in headers.iter() {
        if let KeyAndValueRef::Ascii(key, value) = header {
            request.metadata_mut().insert(key, value.clone());
        }
    }
    // The timeout is sent with the request; it is enforced here as well, in case the receiver ignores it.
    request.set_timeout(timeout);
    let late = |_| Err(Status::deadline_exceeded("no response in time"));
    match tokio::time::timeout(timeout, client.export(request)).await.unwrap_or_else(late) {
        Ok(response) => {
            let ExportProfilesPartialSuccess { rejected_profiles, error_message } =
                response.into_inner().partial_success.unwrap_or_default();
            if rejected_profiles > 0 {
                return Outcome::Failed(Cause::Rejected, error_message);
            }
            if !error_message.is_empty() {
                tracing::warn!(reason = %error_message, "the receiver accepted a profile with a warning");
            }
            Outcome::Delivered
        }
        Err(status) => match retry_delay(&status) {
            delay if is_temporary(&status, delay.is_some()) => Outcome::Retry(delay, status),
            _ => Outcome::Failed(Cause::Refused, format!("{}: {}", status.code(), status.message())),
        },
    }
}

/// Returns whether the same request may succeed later.
fn is_temporary(status: &Status, has_delay: bool) -> bool {
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => has_delay,
        // An error of the connection, not a response of the receiver.
        _ => status.source().is_some(),
    }
}

/// Returns the time before the next attempt: doubled after each failure, and partly random so that collectors do not
/// retry at the same time.
fn pause(settings: &Settings, failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = settings.first_pause.saturating_mul(factor).min(settings.longest_pause);
    let random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos() % 1000);
    whole.mul_f64(0.5 + f64::from(random) / 2000.0)
}

/// google.rpc.Status, the fields used here.
#[derive(Clone, PartialEq, prost::Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// google.rpc.RetryInfo.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// google.protobuf.Duration.
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Maximum delay a receiver can demand.
const LONGEST_DELAY: Duration = Duration::from_secs(300);

fn retry_delay(status: &Status) -> Option<Duration> {
    let details = Details::decode(status.details()).ok()?.details;
    let any = details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&any.value[..]).ok()?.retry_delay?;
    let delay = Duration::new(u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?);
    Some(delay.min(LONGEST_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demanding(code: Code, seconds: i64) -> Status {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos: 500_000_000 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = Details { details: vec![Any { type_url, value: info.encode_to_vec() }] };
        Status::with_details(code, "later", details.encode_to_vec().into())
    }

    #[test]
    fn delays_are_read_and_bounded() {
        let delay = |status: &Status| retry_delay(status);
        assert_eq!(delay(&demanding(Code::Unavailable, 2)), Some(Duration::from_millis(2500)));
        assert_eq!(delay(&demanding(Code::Unavailable, 1 << 40)), Some(LONGEST_DELAY));
        assert_eq!(delay(&demanding(Code::Unavailable, -1)), None);
        assert_eq!(delay(&Status::with_details(Code::Unavailable, "", vec![0xff, 1].into())), None);
        assert!(is_temporary(&demanding(Code::ResourceExhausted, 1), true));
        assert!(!is_temporary(&Status::resource_exhausted("too long"), false));
        assert!(!is_temporary(&Status::invalid_argument("no profile"), false));
        assert!(!is_temporary(&Status::unauthenticated("who?"), false));
    }

    #[test]
    fn pauses_grow_to_their_maximum() {
        let settings = Settings::default();
        assert!(pause(&settings, 1) <= settings.first_pause);
        assert!(pause(&settings, 3) > settings.first_pause);
        for failures in [10, 31, 32, 33, u32::MAX] {
            let pause = pause(&settings, failures);
            assert!(pause >= settings.longest_pause / 2 && pause <= settings.longest_pause, "{failures}");
        }
    }
}
