//! Access to the HTTP server: a token beyond the loopback interface.
//!
//! Profiles contain names of private programs. A server with a token answers only requests that have it, as bearer
//! token (`Authorization: Bearer TOKEN`) or as password of any user, for which browsers ask. An address beyond the
//! loopback interface needs a token or an explicit permission.

use std::net::SocketAddr;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ingest::equal;

/// Conditions for clients of the HTTP server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Shared secret of clients and server; `None` answers everybody.
    pub token: Option<String>,
    /// Permits addresses beyond the loopback interface without a token.
    pub insecure: bool,
}

impl Access {
    /// Returns whether a server with these conditions may listen on `address`.
    pub(super) fn permits(&self, address: SocketAddr) -> bool {
        address.ip().is_loopback() || self.token.is_some() || self.insecure
    }

    /// Returns whether a request with these headers is answered.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, value)) = given.and_then(|given| given.split_once(' ')) else { return false };
        if scheme.eq_ignore_ascii_case("bearer") {
            return equal(token.as_bytes(), value.trim().as_bytes());
        }
        let decoded = STANDARD.decode(value.trim()).unwrap_or_default();
        let password = decoded.iter().position(|&byte| byte == b':').map(|colon| &decoded[colon + 1..]);
        scheme.eq_ignore_ascii_case("basic")
            && password.is_some_and(|password| equal(token.as_bytes(), password))
    }
}
