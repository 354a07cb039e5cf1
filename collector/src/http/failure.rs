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
    fn status(&self) -> StatusCode {
        match self {
            Failure::Query(QueryError::Read(_) | QueryError::Encoding(_)) | Failure::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Failure::Query(QueryError::UnknownView(_) | QueryError::UnknownQuestion) | Failure::NotFound => {
                StatusCode::NOT_FOUND
            }
            Failure::Query(_) | Failure::BadQuery => StatusCode::BAD_REQUEST,
            Failure::Method => StatusCode::METHOD_NOT_ALLOWED,
            Failure::TooLong => StatusCode::URI_TOO_LONG,
            Failure::Host => StatusCode::FORBIDDEN,
            Failure::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The status, and the text as JSON.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let text = json!({ "error": self.to_string() }).to_string() + "\n";
        (self.status(), [(header::CONTENT_TYPE, "application/json")], text).into_response()
    }
}
