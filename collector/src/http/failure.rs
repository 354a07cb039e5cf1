//! Errors of the HTTP API, as status and text.

use axum::http::{HeaderValue, StatusCode, header};
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
    #[error("the token is missing or wrong; send the header Authorization: Bearer TOKEN")]
    Token,
    #[error("the collector serves its maximum of HTTP connections; try again later")]
    Busy,
    #[error(transparent)]
    NotReady(StoreError),
    #[error("agents cannot connect: the listener has ended; restart the collector")]
    NotListening,
    #[error("no answer within a minute; narrow the time or the selection")]
    Late,
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
            Failure::Token => StatusCode::UNAUTHORIZED,
            Failure::Late => StatusCode::GATEWAY_TIMEOUT,
            Failure::NotReady(_) | Failure::NotListening | Failure::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The status, and the text as JSON.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let text = json!({ "error": self.to_string() }).to_string() + "\n";
        let mut response =
            (self.status(), [(header::CONTENT_TYPE, "application/json")], text).into_response();
        if self == Failure::Token {
            // Browsers ask for a password, and send it with the page's own requests.
            let challenge = HeaderValue::from_static("Basic realm=\"Tickwalk\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
