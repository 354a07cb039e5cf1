//! `/debug/pprof/profile?seconds=N`, the address at which Go programs offer their CPU profile: the next N seconds, in
//! pprof.
//!
//! `go tool pprof`, Grafana Alloy, Parca and scripts that fetch profiles of Go programs read it as it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use profile::query::error::QueryError;
use profile::query::selection::Selection;

use super::failure::Failure;
use super::{Pairs, Shared, now_ns, reply};

/// Length of a profile without `seconds`, as in Go.
const SECONDS: u64 = 30;

/// Longest profile. Times of ten minutes and more are widened to whole minutes.
const MOST_SECONDS: u64 = 300;

/// Time in which the samples of the last moment arrive: agents send once a second at least.
const ARRIVAL: Duration = Duration::from_millis(1_500);

/// Waits for the requested time and answers with its samples; for a recording, with its last seconds.
pub(super) async fn profile(
    State(shared): State<Arc<Shared>>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Query(mut pairs) = pairs.map_err(|_| Failure::BadQuery)?;
    let seconds = take_seconds(&mut pairs).map_err(Failure::Query)?;
    // Wrong parameters are refused at once.
    Selection::of(&pairs).map_err(Failure::Query)?;
    if pairs.iter().any(|(name, _)| name == "from" || name == "to") {
        return Err(Failure::Query(QueryError::BadValue {
            parameter: "seconds",
            expected: "it instead of from and to",
        }));
    }
    let source = Arc::clone(&shared.source);
    let grows = tokio::task::spawn_blocking(move || source.end_ns().is_none());
    if grows.await.map_err(|_| Failure::Internal)? {
        let (from_ns, began) = (now_ns(), Instant::now());
        tokio::time::sleep_until((began + Duration::from_secs(seconds) + ARRIVAL).into()).await;
        let in_seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        pairs.push(("from".to_owned(), in_seconds(from_ns)));
        pairs.push(("to".to_owned(), in_seconds(from_ns + seconds * 1_000_000_000)));
    } else {
        pairs.push(("from".to_owned(), format!("-{seconds}s")));
    }
    pairs.push(("format".to_owned(), "pprof".to_owned()));
    let answer = reply(shared, "export".to_owned(), pairs, &headers).await?;
    Ok(([(header::CONTENT_DISPOSITION, "attachment; filename=\"profile.pb.gz\"")], answer).into_response())
}

/// Removes `seconds` from `pairs`, and returns its value or the default.
fn take_seconds(pairs: &mut Vec<(String, String)>) -> Result<u64, QueryError> {
    let Some(position) = pairs.iter().position(|(name, _)| name == "seconds") else { return Ok(SECONDS) };
    let (_, value) = pairs.remove(position);
    let seconds = value.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    seconds.ok_or(QueryError::BadValue { parameter: "seconds", expected: "a number from 1 to 300" })
}
