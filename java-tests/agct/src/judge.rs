//! Decides which of two differing lists of methods is right, by rules that use neither walk.
//!
//! Problem: a count of differences does not explain them, and examples prove nothing.
//! Approach: three kinds of evidence. The class files give the method that the bytecode of a frame calls
//! ([`ClassFiles`]). The copy of the stack shows whether a frame is still there: its return address lies at or above
//! sp, or the thread was interrupted in its code. A thread's stack ends at its first frame, not in the middle. A named
//! rule decides a difference, or it stays undecided.
//! Invariant: ours is right only if each of its frames that the other lacks is called by the next one and is still
//! there, or if something contradicts theirs: a frame that is not called by the next, our bytecode index in the oldest
//! frame that calls something else, or debug information of the instruction behind a call in place of the call's.
//! Frames that theirs has more are right if the same bytecode index and names lead to them otherwise: no evidence of
//! ours can exclude that our walk has lost them.
//! A control measures how often the first kind of evidence holds for equal lists, and how often it finds that a frame
//! was removed from one. A second one drops frames of ours from lists that agree: the judge must never decide for such
//! a list.

use std::collections::BTreeMap;

use crate::class_files::{ClassFiles, Relation};

/// A frame of ours that has a method.
#[derive(Debug, Clone)]
pub struct Activation {
    /// jmethodID, 0 if there is none.
    pub id: u64,
    /// Bytecode index or -1.
    pub bci: i32,
    /// The VM or native code lies between this frame and the next older one.
    pub called_from_outside: bool,
    /// Its return address, or that into its code's deoptimisation handler, lies at or above sp, or the thread was
    /// interrupted in its code.
    pub is_there: bool,
    /// The compiled code lists its return address as that of a call.
    pub is_listed: bool,
}

/// One difference, or two equal lists.
#[derive(Debug, Clone)]
pub struct Case {
    pub ours: Vec<Activation>,
    /// jmethodID and bytecode index.
    pub theirs: Vec<(u64, i32)>,
    /// Our stop reason, if it is not the end of the stack.
    pub cut: Option<&'static str>,
    /// The VM calls Java through an entry frame that is newer than our newest method.
    pub below_entry: bool,
    /// The newest method is compiled, and sp shows that it has no frame: not yet, or no more.
    pub no_frame: bool,
    /// The newest method is compiled and its return address is that of a call which its code lists; theirs differs in
    /// that frame alone, by the methods and bytecodes of the instruction behind the call.
    pub is_behind_call: bool,
    /// The newest frames, in words.
    pub top: String,
    /// Both lists as text.
    pub text: String,
}

/// The list that is right, and the rule that decided.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
pub enum Verdict {
    Ours(String),
    Theirs(String),
    Undecided(String),
}

/// The counts of the control.
#[derive(Debug, Default)]
pub struct Control {
    /// Neighbours in equal lists, by relation.
    pub relations: BTreeMap<&'static str, u64>,
    /// Lists from which a frame was removed, and how many of those were noticed.
    pub removed: (u64, u64),
    /// Lists of ours from which frames were dropped, and how many of these the judge found right, which is wrong.
    pub dropped: (u64, u64),
    /// Lists with a contradiction, or of which a part was found right.
    pub texts: Vec<String>,
}

/// Decides a difference.
pub fn judge(case: &Case, relation: &mut impl FnMut(u64, i32, u64) -> Relation) -> Verdict {
    let ours: Vec<u64> = case.ours.iter().map(|frame| frame.id).collect();
    let theirs: Vec<u64> = case.theirs.iter().map(|frame| frame.0).collect();
    let newest_is_there = case.ours.first().is_some_and(|frame| frame.is_there && frame.is_listed);
    if case.is_behind_call && case.cut.is_none() && newest_is_there {
        return Verdict::Ours(format!("theirs looks a call up at the instruction behind it: {}", case.top));
    }
    if let Some(newer) = place_in(&ours, &theirs) {
        return they_left_out(case, newer, relation);
    }
    if let Some(newer) = place_in(&theirs, &ours) {
        return we_left_out(case, newer, relation);
    }
    if let (Some(stop), true) = (case.cut, ours.is_empty()) {
        return Verdict::Theirs(format!("ours is marked as cut: {stop}"));
    }
    let common = ours.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| a == b).count();
    let (our_rest, their_rest) = (ours.len() - common, theirs.len() - common);
    let our_relations = our_relations(case, 0, our_rest, relation);
    let their_relations: Vec<Relation> = case
        .theirs
        .windows(2)
        .take(their_rest)
        .map(|pair| relation(pair[1].0, pair[1].1, pair[0].0))
        .collect();
    let contradicts = |relations: &[Relation]| relations.contains(&Relation::Contradicts);
    let are_there = case.ours.iter().take(our_rest + 1).all(|frame| frame.is_there);
    let proven = our_relations.iter().all(|relation| relation.holds()) && are_there && case.cut.is_none();
    if common == 0
        && let Some(stop) = case.cut
    {
        return Verdict::Theirs(format!("ours is marked as cut: {stop}"));
    }
    let is_other_call = is_at_other_call(case, our_rest, their_rest);
    // The VM calls methods that no bytecode names, and the other list does not show where.
    let vm_calls = case.below_entry || case.ours.iter().take(our_rest).any(|frame| frame.called_from_outside);
    match (contradicts(&our_relations), contradicts(&their_relations) && !vm_calls) {
        (false, true) if proven => {
            Verdict::Ours(format!("a frame of theirs is not called by the next: {}", case.top))
        }
        (true, false) => Verdict::Theirs(format!("a frame of ours is not called by the next: {}", case.top)),
        (false, false) if proven && is_other_call => {
            Verdict::Ours(format!("its return addresses are listed as these calls: {}", case.top))
        }
        (false, false) => Verdict::Undecided(format!("either is possible: {}", case.top)),
        _ => Verdict::Undecided(format!("neither is possible, or unknown: {}", case.top)),
    }
}

/// True if the newest frame that both lists have in common is at another call in ours, at number `ours` there and
/// `theirs` in the other list, and all of ours that are newer return to calls that their compiled code lists.
///
/// If a method calls itself, the common frame may be another activation of it, which the other list has nearer to its
/// newest end, perhaps with an unknown or a different bci: then the lists differ somewhere else.
fn is_at_other_call(case: &Case, ours: usize, theirs: usize) -> bool {
    let (Some(shared), Some((_, bci))) = (case.ours.get(ours), case.theirs.get(theirs)) else { return false };
    let may_be = |at: usize, bci: i32| at == 0 || bci < 0 || bci == shared.bci;
    let is_newer =
        (0..).zip(&case.theirs).take(theirs).any(|(at, &(id, bci))| id == shared.id && may_be(at, bci));
    let is_listed = shared.is_listed && case.ours.first().is_some_and(|newest| newest.is_listed);
    is_listed && !is_newer && shared.is_there && shared.bci >= 0 && shared.bci != *bci
}

/// Returns the position of `part` in `whole`, as a number of newest elements before it: at the old end if possible.
fn place_in(whole: &[u64], part: &[u64]) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    let last = whole.len().checked_sub(part.len())?;
    std::iter::once(last).chain(0..last).find(|&at| whole.get(at..at + part.len()) == Some(part))
}

/// Returns the relations of `count` frames of ours, from `first` on, to the next older ones.
fn our_relations(
    case: &Case,
    first: usize,
    count: usize,
    relation: &mut impl FnMut(u64, i32, u64) -> Relation,
) -> Vec<Relation> {
    let pairs = case.ours.windows(2).skip(first).take(count);
    pairs
        .map(|pair| match pair {
            [callee, _] if callee.called_from_outside => Relation::Outside,
            [callee, caller] => relation(caller.id, caller.bci, callee.id),
            _ => Relation::Unknown,
        })
        .collect()
}

/// Judges a case in which theirs is a part of ours, `newer` frames from the new end.
fn they_left_out(case: &Case, newer: usize, relation: &mut impl FnMut(u64, i32, u64) -> Relation) -> Verdict {
    let end = newer + case.theirs.len();
    let older = case.ours.len() - end;
    let name = match (newer, older) {
        (_, 0) => format!("{newer} newest: {}", case.top),
        (0, _) => "all below a frame that is not the thread's first".to_owned(),
        _ => format!("{newer} newest, and all below a frame that is not the thread's first: {}", case.top),
    };
    let mut relations = our_relations(case, 0, newer, relation);
    relations.extend(our_relations(case, end - 1, older, relation));
    let left_out = case.ours.iter().enumerate().filter(|(at, _)| *at < newer || *at >= end);
    let are_there = left_out.clone().all(|(_, frame)| frame.is_there);
    if relations.contains(&Relation::Contradicts) {
        return Verdict::Theirs(format!("ours has frames that are not called by the next: {}", case.top));
    }
    if older > 0 && case.cut.is_some() {
        return Verdict::Undecided(format!("both end early: {}", case.top));
    }
    if !relations.iter().all(|relation| relation.holds()) {
        return Verdict::Undecided(format!("left out, callers unknown: {name}"));
    }
    if !are_there {
        return Verdict::Undecided(format!("left out, below sp: {name}"));
    }
    Verdict::Ours(format!("left out {name}"))
}

/// Judges a case in which ours is a part of theirs, `newer` frames from the new end.
fn we_left_out(case: &Case, newer: usize, relation: &mut impl FnMut(u64, i32, u64) -> Relation) -> Verdict {
    let older = case.theirs.len() - newer - case.ours.len();
    if older > 0 {
        return match case.cut {
            Some(stop) => Verdict::Theirs(format!("ours is marked as cut: {stop}")),
            None => Verdict::Theirs("ours ends before the thread's first frame".to_owned()),
        };
    }
    let pairs = case.theirs.windows(2).take(newer);
    let relations: Vec<Relation> = pairs.map(|pair| relation(pair[1].0, pair[1].1, pair[0].0)).collect();
    if relations.contains(&Relation::Contradicts) && !case.below_entry {
        return Verdict::Ours(format!("a frame of theirs is not called by the next: {}", case.top));
    }
    if is_at_other_call(case, 0, newer) {
        return Verdict::Ours(format!("its newest frame is at another call: {}", case.top));
    }
    let is_same_call =
        case.ours.first().map(|shared| shared.bci) == case.theirs.get(newer).map(|frame| frame.1);
    let is_newer =
        case.theirs.iter().take(newer).any(|frame| Some(frame.0) == case.ours.first().map(|f| f.id));
    if case.no_frame && !is_same_call && !is_newer {
        return Verdict::Ours(format!(
            "theirs has calls inlined into a frame that is not built: {}",
            case.top
        ));
    }
    if is_same_call && relations.iter().all(|relation| *relation == Relation::Named) {
        return Verdict::Theirs(format!("theirs has {newer} more newest, called by name: {}", case.top));
    }
    Verdict::Undecided(format!("theirs has {newer} more newest: {}", case.top))
}

/// Most frames that are dropped together.
const MAX_DROPPED: usize = 4;

/// Judges an equal list again with its newest frames dropped from ours, and with frames from its middle dropped;
/// `number` chooses the place. Lists that the class files contradict, and those whose callers are at different
/// bytecodes, do not agree.
pub fn dropped(
    case: &Case,
    number: usize,
    found: &mut Control,
    relation: &mut impl FnMut(u64, i32, u64) -> Relation,
) {
    let same = |(ours, theirs): (&Activation, &(u64, i32))| {
        (ours.id, ours.bci.max(-1)) == (theirs.0, theirs.1.max(-1))
    };
    let agrees = case.ours.iter().zip(&case.theirs).skip(1).all(same);
    if !agrees || our_relations(case, 0, usize::MAX, relation).contains(&Relation::Contradicts) {
        return;
    }
    for count in 1..=MAX_DROPPED {
        let Some(last) = case.ours.len().checked_sub(count + 2) else { break };
        let middle = 1 + number % (last + 1);
        for from in [0, middle] {
            let mut less = case.clone();
            // Entry frames are no methods and stay.
            let from_outside = less.ours.drain(from..from + count).any(|frame| frame.called_from_outside);
            match from.checked_sub(1).and_then(|newer| less.ours.get_mut(newer)) {
                Some(newer) => newer.called_from_outside |= from_outside,
                None => less.below_entry |= from_outside,
            }
            found.dropped.0 += 1;
            if let Verdict::Ours(rule) = judge(&less, relation) {
                found.dropped.1 += 1;
                found.texts.push(format!("{count} frames dropped at {from}, ours: {rule}: {}", case.text));
            }
        }
    }
}

/// Counts the relations in an equal list, and whether the removal of one of its frames is noticed.
pub fn control(
    case: &Case,
    number: usize,
    found: &mut Control,
    relation: &mut impl FnMut(u64, i32, u64) -> Relation,
) {
    for relation in our_relations(case, 0, usize::MAX, relation) {
        let name = match relation {
            Relation::Named => "named",
            Relation::Linked => "linked at run time",
            Relation::Outside => "called from outside",
            Relation::Contradicts => "contradicts",
            Relation::Unknown => "unknown",
        };
        *found.relations.entry(name).or_default() += 1;
    }
    if our_relations(case, 0, usize::MAX, relation).contains(&Relation::Contradicts) {
        found.texts.push(case.text.clone());
    }
    if case.ours.len() < 3 {
        return;
    }
    let mut cut = case.clone();
    let at = 1 + number % (case.ours.len() - 2);
    let removed = cut.ours.remove(at);
    // A method that calls itself, and calls linked at run time, give no evidence.
    let differs = |neighbour: usize| case.ours.get(neighbour).is_some_and(|frame| frame.id != removed.id);
    let relations = our_relations(case, at - 1, 2, relation);
    if !differs(at - 1) || !differs(at + 1) || relations != [Relation::Named, Relation::Named] {
        return;
    }
    found.removed.0 += 1;
    let relations = our_relations(&cut, 0, usize::MAX, relation);
    found.removed.1 += u64::from(relations.contains(&Relation::Contradicts));
}

/// Returns the verdicts with their counts, and the texts of the cases that were not decided for ours.
pub fn judge_all(cases: &[Case], files: &mut ClassFiles) -> (BTreeMap<Verdict, u64>, Vec<String>) {
    let (mut counts, mut texts) = (BTreeMap::new(), Vec::new());
    for case in cases {
        let verdict = judge(case, &mut |caller, bci, callee| files.relation(caller, bci, callee));
        if !matches!(verdict, Verdict::Ours(_)) {
            texts.push(format!("{verdict:?}: {}", case.text));
        }
        *counts.entry(verdict).or_default() += 1;
    }
    (counts, texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method n is called by method n + 1 at bytecode n, and by nothing else.
    fn relation(caller: u64, bci: i32, callee: u64) -> Relation {
        let named = caller == callee + 1 && u64::try_from(bci).is_ok_and(|bci| bci == callee);
        if named { Relation::Named } else { Relation::Contradicts }
    }

    fn case(ours: &[u64], theirs: &[u64]) -> Case {
        let bci = |id: u64| i32::try_from(id).expect("small") - 1;
        let frame = |id: &u64| Activation {
            id: *id,
            bci: bci(*id),
            called_from_outside: false,
            is_there: true,
            is_listed: false,
        };
        Case {
            ours: ours.iter().map(frame).collect(),
            theirs: theirs.iter().map(|id| (*id, bci(*id))).collect(),
            cut: None,
            below_entry: false,
            no_frame: false,
            is_behind_call: false,
            top: "test".to_owned(),
            text: String::new(),
        }
    }

    #[test]
    fn the_list_whose_neighbours_call_each_other_is_right() {
        let whole = [1, 2, 3, 4, 5];
        let ours = |theirs: &[u64]| matches!(judge(&case(&whole, theirs), &mut relation), Verdict::Ours(_));
        assert!(ours(&[2, 3, 4, 5]), "the newest is missing");
        assert!(ours(&[1, 2, 3]), "the oldest are missing");
        assert!(ours(&[2, 3]), "both are missing");
        assert!(ours(&[1, 2, 4, 5]), "one in the middle is missing");
        assert!(ours(&[7, 1, 2, 3, 4, 5]), "one too many");
        let theirs = |ours: &[u64]| matches!(judge(&case(ours, &whole), &mut relation), Verdict::Theirs(_));
        assert!(theirs(&[1, 2, 4, 5]));
        assert!(theirs(&[1, 2, 3]));
        let undecided = |case: &Case| matches!(judge(case, &mut relation), Verdict::Undecided(_));
        let mut newest = case(&[2, 3, 4], &[1, 2, 3, 4]);
        newest.ours[0].is_listed = true;
        assert!(matches!(judge(&newest, &mut relation), Verdict::Theirs(_)), "ours may have lost the newest");
        newest.ours[0].bci = 7;
        assert!(matches!(judge(&newest, &mut relation), Verdict::Ours(_)), "its caller calls something else");
        newest.ours[0].is_listed = false;
        assert!(undecided(&newest), "it may be at any bytecode");
        newest.no_frame = true;
        assert!(matches!(judge(&newest, &mut relation), Verdict::Ours(_)), "it would need a frame");
        let behind = Case { is_behind_call: true, ..case(&[2, 3, 4], &[1, 2, 3, 4]) };
        assert!(matches!(judge(&behind, &mut relation), Verdict::Theirs(_)), "the call is not listed");
        let mut behind = Case { is_behind_call: true, ..case(&[2, 3, 4], &[1, 2, 3, 4]) };
        behind.ours[0].is_listed = true;
        assert!(
            matches!(judge(&behind, &mut relation), Verdict::Ours(_)),
            "theirs has what is inlined behind"
        );
        behind.ours[0].is_there = false;
        assert!(matches!(judge(&behind, &mut relation), Verdict::Theirs(_)), "the call has returned");
        let linked = &mut |_, _, _| Relation::Linked;
        assert!(matches!(judge(&case(&[2, 3], &[1, 2, 3]), linked), Verdict::Undecided(_)), "no name");
    }

    #[test]
    fn ours_needs_live_frames_and_a_complete_end() {
        let verdict = |case: &Case| judge(case, &mut relation);
        let mut gone = case(&[1, 2, 3], &[2, 3]);
        gone.ours[0].is_there = false;
        assert!(matches!(verdict(&gone), Verdict::Undecided(_)));
        let cut = Case { cut: Some("bad_frame"), ..case(&[1, 2, 3], &[1, 2]) };
        assert!(matches!(verdict(&cut), Verdict::Undecided(_)));
        let mut wrong = case(&[9, 2, 3], &[2, 3]);
        assert!(matches!(verdict(&wrong), Verdict::Theirs(_)));
        wrong.ours[0].called_from_outside = true;
        assert!(matches!(verdict(&wrong), Verdict::Ours(_)), "the VM can call anything");
    }

    #[test]
    fn the_control_notices_a_removed_frame() {
        let mut found = Control::default();
        control(&case(&[1, 2, 3, 4], &[1, 2, 3, 4]), 1, &mut found, &mut relation);
        assert_eq!((found.relations.get("named"), found.removed), (Some(&3), (1, 1)));
    }

    #[test]
    fn a_list_that_has_lost_frames_is_never_right() {
        let listed = |mut case: Case| {
            case.ours.iter_mut().for_each(|frame| frame.is_listed = true);
            case
        };
        let lists: [&[u64]; 3] =
            [&[1, 2, 3, 4, 5, 6, 7, 8], &[3, 3, 3, 3, 3, 3, 3], &[1, 2, 1, 2, 1, 2, 1, 2]];
        let mut relations: [&mut dyn FnMut(u64, i32, u64) -> Relation; 3] = [
            &mut |caller, bci, callee| relation(caller, bci, callee),
            &mut |_, _, _| Relation::Named,
            &mut |_, _, _| Relation::Linked,
        ];
        for no_frame in [false, true] {
            let mut found = Control::default();
            // A method that calls itself at several bytecodes, the newest at one that the other list does not know, or
            // where the other list has the instruction behind.
            for newest in [-1, 22] {
                let mut itself = listed(case(&[5; 9], &[5; 9]));
                for (at, (frame, (_, bci))) in itself.ours.iter_mut().zip(&mut itself.theirs).enumerate() {
                    frame.bci = [21, 35, 53, 35][at % 4];
                    *bci = if at == 0 { newest } else { frame.bci };
                }
                (0..9)
                    .for_each(|number| dropped(&itself, number, &mut found, &mut |_, _, _| Relation::Named));
            }
            // The VM calls a class initialiser, which no bytecode names.
            let mut called = listed(case(&[1, 2, 3, 9, 5, 6, 7, 8], &[1, 2, 3, 9, 5, 6, 7, 8]));
            called.ours[3].called_from_outside = true;
            called.ours[2].called_from_outside = true;
            (0..8).for_each(|number| dropped(&called, number, &mut found, &mut relation));
            for (list, relation) in lists.iter().flat_map(|list| (0..3).map(move |at| (list, at))) {
                let whole = Case { no_frame, ..listed(case(list, list)) };
                (0..8).for_each(|number| {
                    dropped(&whole, number, &mut found, &mut |a, b, c| relations[relation](a, b, c));
                });
            }
            assert!(found.dropped.0 > 200, "{} lists", found.dropped.0);
            assert_eq!(found.dropped.1, 0, "{:#?}", found.texts);
        }
    }
}
