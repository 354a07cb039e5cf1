//! The page as one self-contained HTML file.
//!
//! Data cannot become markup: the JSON escapes the characters that could end its element, and the page puts texts
//! only on the canvas or into text nodes.

use std::io::{self, Write};

use crate::query::embedded::Embedded;
use crate::query::error::QueryError;
use crate::query::selection::Selection;
use crate::source::Source;

/// Content security policy: the page may use its own script and style, and load nothing.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" \
                      content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";

/// Writes the page of `selection` in `source` to `out`. Its title is the command of a single process.
pub fn write(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
    mut out: impl Write,
) -> Result<(), QueryError> {
    let data = Embedded::of(source, selection, now_ns)?;
    let json = serde_json::to_string(&data).map_err(io::Error::from)?;
    let head = [POLICY, "\n<style>\n", super::STYLE, "</style>"].concat();
    let scripts = [
        "<script id=\"data\" type=\"application/json\">",
        &escape_json(&json),
        "</script>\n<script>\n\"use strict\";\n",
        &super::roots_script(),
        super::CALL_TREE,
        super::FROM_PAGE,
        super::PAGE,
        "</script>",
    ]
    .concat();
    out.write_all(super::filled(&escape_html(data.title()), &head, &scripts).as_bytes())?;
    Ok(out.flush()?)
}

/// Returns the data as JSON for a script element, without `<`, which could end the element or open a comment.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Escapes `text` for HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
