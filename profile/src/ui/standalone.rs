//! The page as one self-contained HTML file.
//!
//! Data cannot become markup: the JSON escapes the characters that could end its element, and the page puts texts
//! only on the canvas or into text nodes.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

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
    let head = [POLICY, "\n<style>\n", super::STYLE, "</style>"].concat();
    let (before, after) = super::around_scripts(&escape_html(data.title()), &head);
    write!(out, "{before}<script id=\"data\" type=\"application/json\">")?;
    // Not as one text: it may have megabytes, and the agent writes pages inside the profiled process.
    data.serialize(&mut Serializer::with_formatter(&mut out, ForScript)).map_err(io::Error::from)?;
    let scripts = [super::roots_script().as_str(), super::CALL_TREE, super::FROM_PAGE, super::PAGE].concat();
    write!(out, "</script>\n<script>\n\"use strict\";\n{scripts}</script>{after}")?;
    Ok(out.flush()?)
}

/// Writes JSON for a script element.
struct ForScript;

impl Formatter for ForScript {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        out.write_all(escape_json(text).as_bytes())
    }
}

/// Returns the data as JSON for a script element, without `<`, which could end the element or open a comment.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Escapes `text` for HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use proto::v1::Hello;

    use super::*;
    use crate::source::recording::Recording;

    #[test]
    fn the_data_is_escaped_json_whatever_the_title() {
        let command = "</script> & {{data}} <!--".to_owned();
        let recording = Recording::new(Hello { command, ..Hello::default() });
        let all = Selection::default();
        let mut page = Vec::new();
        write(&recording, &all, 0, &mut page).expect("memory");
        let page = String::from_utf8(page).expect("text");
        let data = Embedded::of(&recording, &all, 0).expect("data");
        let json = escape_json(&serde_json::to_string(&data).expect("JSON"));
        assert!(json.contains("\\u003c/script\\u003e \\u0026 {{data}} \\u003c!--"), "{json}");
        let (head, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").expect("data");
        assert!(head.contains("<title>&lt;/script&gt; &amp; {{data}} &lt;!--"), "{head}");
        assert!(rest.starts_with(&format!("{json}</script>")) && rest.ends_with("</html>\n"));
    }
}
