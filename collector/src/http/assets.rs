//! Files of the web UI, embedded.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::failure::Failure;

/// The scripts as one: those that only define things first, the one that starts last.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("../ui/model.js"),
    include_str!("../ui/graph.js"),
    include_str!("../ui/timeline.js"),
    include_str!("../ui/pages.js"),
    include_str!("../ui/app.js"),
);

/// Name, type and content; `index.html` is served at `/`, all of them below `/ui/`.
const FILES: [(&str, &str, &str); 5] = [
    ("index.html", "text/html; charset=utf-8", include_str!("../ui/index.html")),
    ("page.css", "text/css; charset=utf-8", include_str!("../ui/flamegraph.css")),
    ("app.css", "text/css; charset=utf-8", include_str!("../ui/app.css")),
    ("app.js", "text/javascript; charset=utf-8", SCRIPT),
    ("icon.svg", "image/svg+xml", include_str!("../ui/icon.svg")),
];

pub(super) fn reply(name: &str) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some(&(_, content_type, text)) => ([(header::CONTENT_TYPE, content_type)], text).into_response(),
        None => super::failure(Failure::NotFound),
    }
}
