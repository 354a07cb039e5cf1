//! The page over a lake: the last hour, one process, methods and a comparison.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use collector::http::{HttpServer, Probe};
use collector::store::{Intervals, Retention, Store};
use lake::read::source::LakeSource;
use lake::storage::Lake;
use lake::write::upload::upload_oldest;

use crate::page::pages::{content, go, process, settle};
use crate::recorded::{keep, recorded};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_lake_is_shown_for_the_last_hour_and_compared() {
    let Some(browser) = crate::page::browser() else { return };
    let directory = tempfile::tempdir().expect("a temporary folder");
    let url = format!("file://{}", directory.path().join("lake").display()).parse().expect("a URL");
    let lake = Lake::create(&url).expect("a directory");
    let path = directory.path().join("store");
    let store = Store::open_for_lake(&path, Retention::default(), Intervals::default()).expect("a store");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set");
    let now_ns = u64::try_from(now.as_nanos()).expect("this century");
    // The second one is not of the last hour.
    for (name, age) in [("planted-25", 300), ("planted-17", 3 * 3600)] {
        keep(&store, recorded(name), now_ns - age * SECOND).expect("a store");
        store.flush().expect("a fold");
    }
    while upload_oldest(store.spool().expect("a store for a lake"), &lake).expect("a lake that works") {}
    let source = LakeSource::new(lake, Duration::from_secs(60), |_| {});
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = HttpServer::start(address, Arc::new(source), Probe::default()).expect("a free port");
    let origin = format!("http://{}", server.address());

    let page = browser.page(1400, 900);
    page.prefer("light");
    page.open(&format!("{origin}/"));
    settle(&page);
    page.picture("lake");
    assert_eq!((page.text("state.from"), page.number("processes.length")), ("-1h".to_owned(), 1.0));
    assert!(page.holds("graph.view && !$('presets').innerText.includes('All') && !$('live').checked"));
    let own = process(&page, "Planted", 25);
    go(&page, &format!("#process={own}&tab=methods"));
    assert!(content(&page).contains("stageC"), "{}", content(&page));
    assert!(!page.holds("$('account').hidden"));
    // Another time has the other process.
    let earlier = now_ns / SECOND - 4 * 3600;
    go(&page, &format!("#from={earlier}&to={}&tab=threads", now_ns / SECOND - 3600));
    assert_eq!(page.number("processes.length"), 1.0);
    let before = process(&page, "Planted", 17);
    let baseline = format!("before.process={before}&before.from={earlier}");
    go(&page, &format!("#process={own}&from=-1h&{baseline}&tab=compare"));
    page.picture("lake-compare");
    assert!(page.holds("document.querySelectorAll('#content tbody tr').length > 10"), "{}", content(&page));
    assert_eq!(page.complaints(&origin), Vec::<String>::new());
}
