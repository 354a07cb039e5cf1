//! Files of the web UI, embedded.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::failure::Failure;

/// Name, type and content; `index.html` is served at `/`, all of them below `/ui/`.
const FILES: [(&str, &str, &[u8]); 2] = [
    ("index.html", "text/html; charset=utf-8", include_bytes!("../ui/index.html")),
    ("index.js", "text/javascript; charset=utf-8", include_bytes!("../ui/index.js")),
];

pub(super) fn reply(name: &str) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some(&(_, content_type, bytes)) => ([(header::CONTENT_TYPE, content_type)], bytes).into_response(),
        None => super::failure(Failure::NotFound),
    }
}
