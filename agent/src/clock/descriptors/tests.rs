//! The table, with descriptors inside and outside of it.

use super::*;

#[test]
fn a_descriptor_has_the_slot_and_key_that_were_set() {
    let table = Descriptors::new(crate::handler::slots::map_words(8).expect("memory"));
    let key = Key::default().next(5);
    assert!(table.set(7, 65_535, key) && table.set(0, 0, key));
    assert_eq!((table.get(7), table.get(0)), (Some((65_535, key)), Some((0, key))));
    assert_eq!((table.get(1), table.get(8), table.get(-1)), (None, None, None));
    assert!(!table.set(8, 0, key) && !table.set(-1, 0, key));
}
