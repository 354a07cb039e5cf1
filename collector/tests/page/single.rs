//! The flame graph that is one file: opened from the disk, without a server.

use std::path::Path;

use collector::export::flamegraph_html;
use collector::profile::Profile;
use proto::v1::agent_message::Body;

use crate::recorded::recorded;

#[test]
fn a_flame_graph_file_needs_no_server() {
    let Some(browser) = crate::browser() else { return };
    let messages = recorded("h2-25");
    let Some(Body::Hello(hello)) = &messages[0].body else { panic!("hello comes first") };
    let mut profile = Profile::new(hello.clone());
    messages.iter().cloned().for_each(|message| profile.add(message));
    let mut bytes = Vec::new();
    flamegraph_html::write(&profile, "h2", &mut bytes).expect("writing to memory");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("h2.html");
    std::fs::write(&path, bytes).expect("written");
    for theme in ["light", "dark"] {
        let page = browser.page(1400, 900);
        page.prefer(theme);
        page.open(&format!("file://{}", path.display()));
        // Its script is a module, whose names are its own: what can be asked is what is shown.
        page.until(
            "document.querySelectorAll('#hot tr').length > 50 && document.getElementById('legend').innerText",
        );
        assert_eq!(page.text("document.documentElement.dataset.theme"), theme);
        assert!(page.holds("document.getElementById('warnings').hidden"));
        assert!(page.text("document.getElementById('facts').innerText").contains("explained"));
        // The first method by self time is found by a click, and stands for as much CPU time as its row says.
        let share = page.text("document.querySelector('#hot td.lead').innerText");
        page.click_on("document.querySelector('#hot tr')");
        page.until("document.getElementById('matched').innerText.includes('%')");
        page.key("Escape");
        page.until("document.getElementById('matched').innerText === ''");
        assert!(share.ends_with('%'), "{share}");
        page.key("r");
        page.until("document.getElementById('reverse').getAttribute('aria-pressed') === 'true'");
        page.key("i");
        page.until("document.getElementById('icicle').getAttribute('aria-pressed') === 'true'");
        // Something is drawn: the first row below the root is not empty paper.
        let colours = page.number(
            "(() => { const canvas = document.getElementById('canvas'); \
             const data = canvas.getContext('2d').getImageData(0, 28, canvas.width, 1).data; const seen = new Set(); \
             for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`); \
             return seen.size; })()",
        );
        assert!(colours > 5.0, "{colours} colours");
        page.picture(&format!("file-{theme}"));
        assert_eq!(page.complaints("file:"), Vec::<String>::new());
    }
}
