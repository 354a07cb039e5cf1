//! The page: one set of files, served by the collector's HTTP server or written with its data by [`standalone`].
//!
//! The scripts are classic scripts in one scope, in the order below: data, drawing, views, the frame around them.
//! The only difference between both forms is the source of the data: HTTP or an element of the page.

pub mod standalone;

use crate::query::roots::ROOTS;

pub const STYLE: &str = concat!(include_str!("style/frame.css"), include_str!("style/views.css"));

/// The icon of the served page.
pub const ICON: &str = include_str!("icon.svg");

const DOCUMENT: &str = include_str!("index.html");
const CALL_TREE: &str = concat!(
    include_str!("data/matcher.js"),
    include_str!("data/call_tree.js"),
    include_str!("data/phases.js"),
    include_str!("data/views.js"),
    include_str!("data/chart.js"),
    include_str!("data/heaviest.js"),
);
const FROM_HTTP: &str = include_str!("data/http.js");
const FROM_PAGE: &str = concat!(include_str!("data/words.js"), include_str!("data/embedded.js"));
const PAGE: &str = concat!(
    include_str!("parts/numbers.js"),
    include_str!("parts/elements.js"),
    include_str!("parts/graph.js"),
    include_str!("parts/matches.js"),
    include_str!("parts/timeline.js"),
    include_str!("parts/lines.js"),
    include_str!("views/flame.js"),
    include_str!("views/tables.js"),
    include_str!("views/callers.js"),
    include_str!("views/chart.js"),
    include_str!("views/compare.js"),
    include_str!("views/statistics.js"),
    include_str!("frame/address.js"),
    include_str!("frame/place.js"),
    include_str!("frame/search.js"),
    include_str!("frame/surroundings.js"),
    include_str!("frame/main.js"),
);

/// The script of the served page.
pub fn script() -> String {
    ["\"use strict\";\n", &roots_script(), CALL_TREE, FROM_HTTP, PAGE].concat()
}

/// Returns the definition of the functions that the flame graph folds.
fn roots_script() -> String {
    format!("const ROOTS = new Set({ROOTS:?});\n")
}

/// The document of the served page, which shows `usual_time` unless another time is chosen.
pub fn document(usual_time: Option<&str>) -> String {
    let mut head = "<link rel=\"icon\" href=\"/ui/icon.svg\" type=\"image/svg+xml\">\n\
                    <link rel=\"stylesheet\" href=\"/ui/app.css\">"
        .to_owned();
    if let Some(time) = usual_time {
        head += &format!("\n<meta name=\"usual-time\" content=\"{time}\">");
    }
    let (before, after) = around_scripts("Tickwalk", &head);
    before + "<script src=\"/ui/app.js\"></script>" + after
}

/// Returns the document before and after its scripts. Its placeholders are filled from front to back, so those inside
/// the title or the head stay as they are.
fn around_scripts(title: &str, head: &str) -> (String, &'static str) {
    let mut text = String::with_capacity(DOCUMENT.len() + head.len());
    let mut rest = DOCUMENT;
    for (placeholder, part) in [("{{title}}", title), ("{{head}}", head), ("{{scripts}}", "")] {
        if let Some((before, after)) = rest.split_once(placeholder) {
            text.extend([before, part]);
            rest = after;
        }
    }
    (text, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_of_the_document_is_filled_once() {
        let (before, after) = around_scripts("{{head}}", "{{scripts}}");
        assert!(before.contains("<title>{{head}}</title>"), "{before}");
        assert_eq!((before.matches("{{").count(), before.matches("{{scripts}}").count()), (2, 1));
        assert_eq!(after, "\n</body>\n</html>\n");
    }
}
