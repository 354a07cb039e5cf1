//! Delivery to one receiver: one request at a time, repeated for as long as that may help.
//!
//! Source: OTLP specification 1.5 and later, "Failures" and "Retryable Response Codes"; google.rpc.RetryInfo.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::Settings;
use super::outbox::{Batch, Cause, Outbox};

/// How an attempt ended.
enum Outcome {
    Delivered,
    /// It may be tried again, not before this time if there is one.
    Later(Option<Duration>, Status),
    Lost(Cause, String),
}

/// Sends what is put into `outbox` until that is closed and empty.
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
                    tracing::info!(%address, "the receiver takes profiles again");
                }
                failures = 0;
                outbox.delivered(batch.amount);
            }
            Outcome::Later(asked, status) => {
                if failures == 0 {
                    tracing::warn!(%address, code = %status.code(), reason = status.message(), "the receiver does not take profiles, they wait");
                }
                failures += 1;
                outbox.put_back(batch);
                let wait = tokio::time::sleep(asked.unwrap_or_else(|| pause(&settings, failures)));
                // At the end the receiver may be back, and little time is left to see it.
                tokio::select! {
                    () = wait => {}
                    () = outbox.closed(), if asked.is_none() && !outbox.is_closed() => failures = 0,
                }
            }
            Outcome::Lost(cause, reason) => {
                tracing::warn!(%address, cause = cause.name(), samples = batch.amount.samples, %reason, "the receiver does not want a profile, it is dropped");
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
    for header in headers.iter() {
        if let KeyAndValueRef::Ascii(key, value) = header {
            request.metadata_mut().insert(key, value.clone());
        }
    }
    // Both, for the deadline travels with the request and the receiver may not keep it.
    request.set_timeout(timeout);
    let answer = match tokio::time::timeout(timeout, client.export(request)).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("no answer in time")),
    };
    match answer {
        Ok(response) => match response.into_inner().partial_success {
            Some(ExportProfilesPartialSuccess { rejected_profiles: 1.., error_message }) => {
                Outcome::Lost(Cause::Rejected, error_message)
            }
            Some(ExportProfilesPartialSuccess { error_message, .. }) if !error_message.is_empty() => {
                tracing::warn!(reason = %error_message, "the receiver took a profile and warns");
                Outcome::Delivered
            }
            _ => Outcome::Delivered,
        },
        Err(status) => {
            let asked = retry_delay(&status);
            if is_temporary(&status, asked.is_some()) {
                Outcome::Later(asked, status)
            } else {
                Outcome::Lost(Cause::Refused, format!("{}: {}", status.code(), status.message()))
            }
        }
    }
}

/// Whether the same request may succeed later.
fn is_temporary(status: &Status, asks_for_delay: bool) -> bool {
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => asks_for_delay,
        // An error of the connection rather than an answer of the receiver.
        _ => status.source().is_some(),
    }
}

/// Time before the next attempt: doubled after each failure, and a random part of it so that collectors that lost
/// the same receiver do not come back together.
fn pause(settings: &Settings, failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = settings.first_pause.saturating_mul(factor).min(settings.longest_pause);
    let random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos() % 1000);
    whole.mul_f64(0.5 + f64::from(random) / 2000.0)
}

/// google.rpc.Status, as far as it matters here.
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

/// Longest wait a receiver can ask for; a mistaken one must not silence the collector for good.
const LONGEST_DELAY: Duration = Duration::from_secs(300);

/// How long the receiver asks to be left alone.
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

    fn asking(code: Code, seconds: i64) -> Status {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos: 500_000_000 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = Details { details: vec![Any { type_url, value: info.encode_to_vec() }] };
        Status::with_details(code, "later", details.encode_to_vec().into())
    }

    #[test]
    fn the_receiver_says_when() {
        let when = |status: &Status| retry_delay(status);
        assert_eq!(when(&asking(Code::Unavailable, 2)), Some(Duration::from_millis(2500)));
        assert_eq!(when(&asking(Code::Unavailable, 1 << 40)), Some(LONGEST_DELAY));
        assert_eq!(when(&asking(Code::Unavailable, -1)), None);
        assert_eq!(when(&Status::with_details(Code::Unavailable, "", vec![0xff, 1].into())), None);
        assert!(is_temporary(&asking(Code::ResourceExhausted, 1), true));
        assert!(!is_temporary(&Status::resource_exhausted("too long"), false));
        assert!(!is_temporary(&Status::invalid_argument("no profile"), false));
        assert!(!is_temporary(&Status::unauthenticated("who?"), false));
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let settings = Settings::default();
        assert!(pause(&settings, 1) <= settings.first_pause);
        assert!(pause(&settings, 3) > settings.first_pause);
        for failures in [10, 31, 32, 33, u32::MAX] {
            let pause = pause(&settings, failures);
            assert!(pause >= settings.longest_pause / 2 && pause <= settings.longest_pause, "{failures}");
        }
    }
}
