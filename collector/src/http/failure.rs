//! Errors of the HTTP API, as status and text.

use std::fmt;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::store::StoreError;
use profile::query::error::QueryError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Query(QueryError),
    NotFound,
    Method,
    TooLong,
    BadQuery,
    Host,
    NotReady(StoreError),
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Query(error) => error.fmt(f),
            Failure::NotFound => f.write_str("no such endpoint; see the HTTP API documentation"),
            Failure::Method => f.write_str("method not allowed; use GET"),
            Failure::TooLong => f.write_str("the query string exceeds 16 KiB; shorten it"),
            Failure::BadQuery => f.write_str("invalid query string; write name=value pairs joined by &"),
            Failure::Host => {
                f.write_str("the Host header does not name this machine; use localhost or an IP address")
            }
            Failure::NotReady(error) => error.fmt(f),
            Failure::Internal => f.write_str("internal error; see the log of the collector"),
        }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure::Query(error)
    }
}

/// Returns the response for a failure: its status, and its text as JSON.
pub(super) fn respond(failure: Failure) -> Response {
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = json!({ "error": failure.to_string() }).to_string() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
