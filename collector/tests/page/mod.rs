//! The web UI in a real browser, over recordings of real JVMs.
//!
//! Skipped with a message where there is no Chromium; `TICKWALK_REQUIRE_CHROMIUM=1` makes that a failure.
//! Pictures of every page are left in Cargo's folder for test output, `page/`, to be looked at.

mod browser;
mod chart;
mod comparing;
mod lakes;
mod large;
mod matches;
mod narrow;
mod narrowing;
mod pages;
mod phases;
mod reloads;
mod served;
mod standalone;

use browser::Browser;

/// A browser, or `None` after saying that there is none.
fn browser() -> Option<Browser> {
    match Browser::find() {
        Some(program) => Some(Browser::start(&program)),
        None => {
            let is_required = std::env::var_os("TICKWALK_REQUIRE_CHROMIUM").is_some_and(|value| value == "1");
            assert!(!is_required, "no Chromium: install Debian's chromium, or name one in TICKWALK_CHROMIUM");
            // Not through print, which the test runner swallows where tests pass.
            let text =
                b"\nSKIPPED: no Chromium on the path and none in TICKWALK_CHROMIUM, the page is not tested\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text);
            None
        }
    }
}
