//! Files of the web UI, embedded.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use profile::ui;

/// The file `name` of the page; `index.html` is served at `/`, all of them below `/ui/`. `usual_time` is that of the
/// source.
pub(super) fn reply(name: &str, usual_time: Option<&str>) -> Result<Response, Failure> {
    let (content_type, text) = match name {
        "index.html" => ("text/html; charset=utf-8", ui::document(usual_time)),
        "app.css" => ("text/css; charset=utf-8", ui::STYLE.to_owned()),
        "app.js" => ("text/javascript; charset=utf-8", ui::script()),
        "icon.svg" => ("image/svg+xml", ui::ICON.to_owned()),
        _ => return Err(Failure::NotFound),
    };
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}
