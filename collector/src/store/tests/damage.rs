//! A damaged closed partition is set aside, and answers show that its time is missing.

use serde_json::Value;

use super::unloaded::{query, store_of_four};
use super::*;

/// Damages all pages of a file but those of the schema.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[16 << 10..].fill(0x5a);
    fs::write(path, bytes).expect("a file");
}

/// Checks that answers have everything but the second of four partitions, and name its file.
fn check_gap(store: &Store, path: &Path) {
    let path = path.display().to_string();
    let answer: Value = serde_json::from_slice(&query(store, "methods", &[])).expect("JSON");
    assert_eq!(answer["samples"], 3 * (30 + 20), "{answer}");
    assert_eq!(answer["span"]["gaps"][0]["path"], path, "{answer}");
    assert_eq!(answer["span"]["gaps"].as_array().map(Vec::len), Some(1), "{answer}");
    let answer: Value = serde_json::from_slice(&query(store, "timeline", &[])).expect("JSON");
    assert_eq!(answer["gaps"][0]["path"], path, "{answer}");
    for text in [query(store, "view/threads", &[]), query(store, "top", &[])] {
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains(&format!("warning: samples of {path} are missing")), "{text}");
    }
}

#[test]
fn a_damaged_old_partition_is_set_aside_until_it_expires() {
    let directory = tempfile::tempdir().expect("temporary directory");
    store_of_four(directory.path()).close().expect("fold");
    let path = partition_paths(directory.path()).expect("a store").remove(1);
    damage(&path);
    let store = Store::open_for_reading(directory.path()).expect("the rest can be read");
    check_gap(&store, &path);
    drop(store);
    assert!(path.exists(), "reading changes no file");
    let aside = path.with_extension("damaged");
    for _ in 0..2 {
        let store = Store::open(directory.path(), Retention::default()).expect("a collector starts");
        assert!(aside.exists() && !path.exists());
        check_gap(&store, &aside);
        let mut agent = Agent::new(99);
        let hello = agent.hello();
        append(&store, &agent, &[hello]).expect("agents are served");
        store.close().expect("fold");
    }
    let store = Store::open(directory.path(), Retention::default()).expect("a collector starts");
    upkeep::run(&store.shared, now_s() + Retention::default().age.as_secs() + 60).expect("upkeep");
    assert!(!aside.exists());
    assert_eq!(store.gaps(), []);
}

#[test]
fn damage_that_a_query_meets_is_left_out_of_its_answer() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    // The logs of closed partitions become part of their files.
    store.maintain().expect("upkeep");
    let path = store.shared.partitions.read()[1].database.path().to_owned();
    damage(&path);
    check_gap(&store, &path);
}
