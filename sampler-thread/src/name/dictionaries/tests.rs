//! Equal entries have one number, and ids of stacks depend on their content alone.

use proto::v1::Entries;

use super::*;

fn method() -> MethodText {
    MethodText {
        class_name: "a/B".into(),
        name: "run".into(),
        signature: "()V".into(),
        ..MethodText::default()
    }
}

fn pending(dictionaries: &mut Dictionaries) -> Entries {
    dictionaries.take_pending().and_then(|pending| pending.entries).expect("entries")
}

#[test]
fn equal_stacks_are_one_entry() {
    let mut dictionaries = Dictionaries::default();
    let mut ids = Vec::new();
    for _ in 0..100 {
        let method = dictionaries.method(&method());
        let frame = dictionaries.java_frame(FrameKind::C2, method, 7, 12);
        ids.push(dictionaries.stack(&[frame], "end_of_stack"));
    }
    let pending = pending(&mut dictionaries);
    let strings: Vec<&str> = pending.string.iter().map(String::as_str).collect();
    assert_eq!(strings, ["a/B", "run", "()V", "end_of_stack"]);
    assert_eq!((pending.method_name.len(), pending.frame_bci.len()), (1, 1));
    assert_eq!((pending.first_node, &pending.node_parent[..]), (FIRST[3], &[0, 1][..]));
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert!(dictionaries.take_pending().is_none());
}

#[test]
fn entries_in_reused_memory_are_those_in_new_memory() {
    let fill = |dictionaries: &mut Dictionaries, round: u32, stacks: u32| {
        for number in 0..stacks {
            let symbol = format!("{round} {number}");
            let frame = dictionaries.native_frame(FrameKind::Native, &symbol, "lib");
            dictionaries.stack(&[frame], "end_of_stack");
        }
        dictionaries.take_pending().expect("entries")
    };
    let (mut reusing, mut plain) = (Dictionaries::default(), Dictionaries::default());
    let room = |sent: &Dictionary| sent.entries.as_ref().map_or(0, |entries| entries.node_frame.capacity());
    for round in 0..3 {
        let sent = fill(&mut reusing, round, 100);
        assert_eq!(sent, fill(&mut plain, round, 100));
        reusing.reuse_memory(sent);
        assert!(reusing.take_pending().is_none());
    }
    assert!(room(&fill(&mut plain, 3, 1)) < 100 && room(&fill(&mut reusing, 3, 1)) > 100);

    let unusual = fill(&mut reusing, 4, 100_000);
    reusing.reuse_memory(unusual);
    assert!(room(&fill(&mut reusing, 5, 1)) < 100, "the memory of the unusual message was freed");
}

/// Two sessions that use the same stacks in another order, and one after its entries were forgotten.
#[test]
fn equal_stacks_have_equal_ids_by_content() {
    let stacks: [(&[&str], &str); 4] = [
        (&["a", "b", "c"], "end_of_stack"),
        (&["b", "a", "c"], "end_of_stack"),
        (&["a", "b", "c"], "copy_end"),
        (&["b", "c"], "end_of_stack"),
    ];
    let sample = |dictionaries: &mut Dictionaries, place: usize| {
        let (symbols, stop) = stacks[place];
        let method = dictionaries.method(&method());
        let mut frames: Vec<u64> = symbols
            .iter()
            .map(|symbol| dictionaries.native_frame(FrameKind::Native, symbol, "lib"))
            .collect();
        frames.push(dictionaries.java_frame(FrameKind::C2, method, 7, 12));
        dictionaries.stack(&frames, stop)
    };
    // By place: the ids by content that were sent.
    let run = |dictionaries: &mut Dictionaries, order: [usize; 4]| {
        let numbers = order.map(|place| sample(dictionaries, place));
        let sent = pending(dictionaries);
        assert_eq!(sent.stack_node, numbers.map(|number| number as u32), "each once, in the order of use");
        let mut ids = [0; 4];
        order.iter().zip(&sent.stack_id).for_each(|(place, id)| ids[*place] = *id);
        ids
    };
    let (mut one, mut other) = (Dictionaries::default(), Dictionaries::default());
    other.symbol_frame(FrameKind::Stub, "something else first");
    let ids = run(&mut one, [0, 1, 2, 3]);
    assert_eq!(std::collections::HashSet::from(ids).len(), 4, "different stacks: {ids:?}");
    assert_eq!(run(&mut other, [3, 1, 0, 2]), ids);
    sample(&mut one, 2);
    assert!(one.take_pending().is_none(), "sent once");
    one.forget();
    assert_eq!(run(&mut one, [2, 0, 3, 1]), ids, "after everything was forgotten");
    // Part of the wire format: other versions have the same.
    let mut plain = Dictionaries::default();
    let frame = plain.native_frame(FrameKind::Native, "f", "");
    plain.stack(&[frame], "end_of_stack");
    assert_eq!(pending(&mut plain).stack_id, [12_610_833_381_567_769_803]);
}

#[test]
fn a_stack_costs_what_is_new_in_it() {
    let mut dictionaries = Dictionaries::default();
    let frames: Vec<u64> =
        (0..6).map(|n| dictionaries.symbol_frame(FrameKind::Native, &format!("f{n}"))).collect();
    let deep = dictionaries.stack(&frames[1..], "end_of_stack");
    assert_eq!(pending(&mut dictionaries).node_parent, [0, 1, 1, 1, 1, 1]);
    let other = dictionaries.stack(&[&frames[..1], &frames[3..]].concat(), "end_of_stack");
    let new = pending(&mut dictionaries);
    // Below the node of frame 3, which is three numbers back: behind it came frames 2 and 1.
    assert_eq!((new.first_node, &new.node_parent[..]), (FIRST[3] + 6, &[3][..]));
    assert_eq!(u64::from(new.first_node), other);
    // A caller of known stacks is a stack already.
    assert_eq!(dictionaries.stack(&frames[2..], "end_of_stack"), deep - 1);
    assert_eq!(dictionaries.stack(&frames[1..], "end_of_stack"), deep);
    let new = pending(&mut dictionaries);
    assert_eq!(
        (new.stack_node, new.node_frame.len()),
        (vec![deep as u32 - 1], 0),
        "only its id by content is new"
    );
}

#[test]
fn forgotten_entries_are_sent_again_with_new_ids() {
    let mut dictionaries = Dictionaries::default();
    let all = |dictionaries: &mut Dictionaries| {
        let frame = dictionaries.symbol_frame(FrameKind::Native, "f");
        (frame, dictionaries.stack(&[frame], "end_of_stack"))
    };
    let before = all(&mut dictionaries);
    let first = pending(&mut dictionaries);
    dictionaries.forget();
    assert!(dictionaries.take_reset() && !dictionaries.take_reset());
    let after = all(&mut dictionaries);
    let second = pending(&mut dictionaries);
    assert!(after.0 > before.0 && after.1 > before.1);
    assert_eq!(first.string, second.string);
    assert_eq!(second.first_string, first.first_string + 2);
}

#[test]
fn the_stop_reason_is_part_of_a_stack() {
    let mut dictionaries = Dictionaries::default();
    let whole = dictionaries.stack(&[5, 6], "end_of_stack");
    let cut = dictionaries.stack(&[5, 6], "copy_end");
    assert_ne!(whole, cut);
    assert_eq!(dictionaries.stack(&[5, 6], "end_of_stack"), whole);
}

#[test]
fn reserved_ids_stay_free() {
    let (reserved, stack) = reserved_stack("[merged]", "merged");
    let reserved = reserved.entries.expect("entries");
    let mut dictionaries = Dictionaries::default();
    let method = dictionaries.method(&method());
    let frame = dictionaries.java_frame(FrameKind::C2, method, 7, 12);
    dictionaries.stack(&[frame], "end_of_stack");
    let own = pending(&mut dictionaries);
    let ends = |entries: &Entries| {
        [
            entries.first_string + entries.string.len() as u32,
            entries.first_frame + entries.frame_bci.len() as u32,
            entries.first_node + entries.node_frame.len() as u32,
        ]
    };
    assert_eq!(ends(&reserved), [own.first_string, own.first_frame, own.first_node]);
    assert_eq!(stack, u64::from(own.first_node) - 1);
}
