//! Errors of the HTTP API, as status and text.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::store::StoreError;
use profile::query::error::QueryError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("no such endpoint; see the HTTP API documentation")]
    NotFound,
    #[error("method not allowed; use GET")]
    Method,
    #[error("the query string exceeds 16 KiB; shorten it")]
    TooLong,
    #[error("invalid query string; write name=value pairs joined by &")]
    BadQuery,
    #[error("the Host header does not name this machine; use localhost or an IP address")]
    Host,
    #[error(transparent)]
    NotReady(StoreError),
    #[error("internal error; see the log of the collector")]
    Internal,
}

impl Failure {
    pub(super) fn status(&self) -> u16 {
        match self {
            Failure::Query(QueryError::Read(_) | QueryError::Encoding(_)) | Failure::Internal => 500,
            Failure::Query(QueryError::UnknownView(_) | QueryError::UnknownQuestion) | Failure::NotFound => {
                404
            }
            Failure::Query(_) | Failure::BadQuery => 400,
            Failure::Method => 405,
            Failure::TooLong => 414,
            Failure::Host => 403,
            Failure::NotReady(_) => 503,
        }
    }
}

/// Returns the response for a failure: its status, and its text as JSON.
pub(super) fn respond(failure: Failure) -> Response {
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = json!({ "error": failure.to_string() }).to_string() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
