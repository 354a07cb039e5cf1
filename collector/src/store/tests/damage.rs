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
    let answer: Value = serde_json::from_slice(&query(store, "processes", &[])).expect("JSON");
    assert!(answer["warnings"][0].as_str().is_some_and(|text| text.contains(&path)), "{answer}");
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
fn a_partition_that_a_query_finds_damaged_is_left_out() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    // The logs of closed partitions become part of their files.
    store.maintain().expect("upkeep");
    let path = store.shared.partitions.read()[1].database.path().to_owned();
    damage(&path);
    check_gap(&store, &path);
}

/// Bytes of a closed partition are overwritten: its samples are complete, or the answer states that they are
/// missing.
#[test]
fn overwritten_bytes_are_reported_or_change_no_answer() {
    let original = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(original.path());
    store.maintain().expect("upkeep");
    store.close().expect("fold");
    let path = partition_paths(original.path()).expect("a store").remove(1);
    let intact = fs::read(&path).expect("a partition");
    let whole = 4 * (30 + 20);
    // Most of a small partition are free parts of pages.
    let used: Vec<usize> = (0..intact.len()).filter(|&at| intact[at] != 0).collect();
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut said, mut harmless) = (0, 0);
    for round in 0..400 {
        let mut bytes = intact.clone();
        let (at, len) = (used[random(used.len())].min(bytes.len() - 64), [1, 2, 8, 64][round % 4]);
        for byte in &mut bytes[at..at + len] {
            *byte = if round % 3 == 0 { 0 } else { *byte ^ (1 + random(255) as u8) };
        }
        fs::write(&path, &bytes).expect("a file");
        let Ok(store) = Store::open_for_reading(original.path()) else {
            said += 1;
            continue;
        };
        let pairs: Vec<(String, String)> = Vec::new();
        let answer = profile::api::question::answer(&store, "methods", &pairs, DAY_NS + 86_400 * NS);
        let Ok(answer) = answer else {
            said += 1;
            continue;
        };
        let answer: Value = serde_json::from_slice(&answer.bytes).expect("JSON");
        match answer["span"]["gaps"].is_null() {
            true => {
                harmless += 1;
                assert_eq!(answer["samples"], whole, "{len} bytes overwritten at {at}: {answer}");
                let names: Vec<&str> = answer["methods"]
                    .as_array()
                    .expect("rows")
                    .iter()
                    .filter_map(|row| row["name"].as_str())
                    .collect();
                assert!(names.contains(&"own 1"), "{len} bytes overwritten at {at}: {answer}");
            }
            false => said += 1,
        }
    }
    assert!(said > 20 && harmless > 20, "{said} said, {harmless} harmless");
}
