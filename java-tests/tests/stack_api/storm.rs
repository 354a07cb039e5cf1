//! Judges traces of `DeoptStorm` that differ from AsyncGetCallTrace's, by the calls that the program's source contains.
//!
//! AsyncGetCallTrace loses frames while code is deoptimised: the newest, of a method that was entered a moment ago, or
//! all that are older than the interrupted one. Neither can be seen in its trace alone. Evidence for our trace is the
//! source: each of our frames is called by the method of the next one, and our oldest frame is the program's first
//! method.

/// Methods of the program that another one calls, with their callers.
const CALLS: [(&str, &[&str]); 9] = [
    ("Step;apply", &["Round;descend"]),
    ("OtherStep;apply", &["Round;descend"]),
    ("Round;descend", &["Round;descend", "Round;run"]),
    ("Round;load", &["Round;descend"]),
    ("Round;typed", &["Round;run"]),
    ("Round;caught", &["Round;run"]),
    ("Round;run", &["DeoptStorm;main"]),
    ("Step;<init>", &["OtherStep;<init>", "Round;run"]),
    ("OtherStep;<init>", &["Round;load"]),
];
const FIRST: &str = "DeoptStorm;main";

/// Frames from the newest to the oldest, as the client prints them.
struct Trace<'a>(Vec<&'a str>);

impl<'a> Trace<'a> {
    fn parse(line: &'a str, whose: &str) -> Option<Self> {
        let frames = line.strip_prefix(whose)?.split_whitespace();
        Some(Self(
            frames
                .map(|frame| frame.strip_prefix("LDeoptStorm$").or(frame.strip_prefix('L')).unwrap_or(frame))
                .collect(),
        ))
    }

    /// The name of a frame's method, if it belongs to the program.
    fn own(frame: &str) -> Option<&str> {
        let (name, _) = frame.rsplit_once(':')?;
        (name == FIRST || CALLS.iter().any(|(callee, _)| *callee == name)).then_some(name)
    }

    /// Every frame is one of the program, each is called by the next, and the oldest is the first method.
    fn is_possible(&self) -> bool {
        let Some(names) = self.0.iter().map(|frame| Self::own(frame)).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let called = |pair: &[&str]| {
            CALLS.iter().any(|(callee, callers)| *callee == pair[0] && callers.contains(&pair[1]))
        };
        names.windows(2).all(called) && self.is_of_main()
    }

    /// The oldest frame is the first method of the program's only thread; a list of the same thread without it has lost
    /// frames.
    fn is_of_main(&self) -> bool {
        self.0.last().is_some_and(|frame| Self::own(frame) == Some(FIRST))
    }
}

/// How many differing pairs of traces were judged, and for whom.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Ours is a possible stack of the program, and theirs lacks its newest or its oldest frames; or ours begins in
    /// code of the JDK and reaches the first method, and theirs does not.
    pub they_lost: i64,
    /// The newest frame of ours is a method of the program, and nothing decides.
    pub undecided: i64,
    /// The same in code of the JDK, whose calls are not known here.
    pub elsewhere: i64,
}

impl Verdicts {
    pub fn of(report: &str) -> Self {
        let mut verdicts = Self::default();
        let lines: Vec<&str> = report.lines().collect();
        for pair in lines.windows(2) {
            let (Some(ours), Some(theirs)) =
                (Trace::parse(pair[0], "ours "), Trace::parse(pair[1], "theirs "))
            else {
                continue;
            };
            let newest_lost = ours.0.ends_with(&theirs.0);
            let oldest_lost = ours.is_of_main() && !theirs.is_of_main();
            let ours_is_own = ours.0.first().is_some_and(|frame| Trace::own(frame).is_some());
            if ours.is_possible() && (newest_lost || oldest_lost) || !ours_is_own && oldest_lost {
                verdicts.they_lost += 1;
            } else if ours_is_own {
                verdicts.undecided += 1;
            } else {
                verdicts.elsewhere += 1;
            }
        }
        verdicts
    }
}

#[test]
fn a_trace_that_lost_frames_is_known_by_the_source() {
    let whole = "LDeoptStorm$Step;apply:-1 LDeoptStorm$Round;descend:53 LDeoptStorm$Round;descend:35 LDeoptStorm$Round;run:28 LDeoptStorm;main:58";
    let judged = |ours: &str, theirs: &str| Verdicts::of(&format!("ours {ours} \ntheirs {theirs} \n"));
    let they_lost = Verdicts { they_lost: 1, ..Verdicts::default() };
    let undecided = Verdicts { undecided: 1, ..Verdicts::default() };
    let (_, newest_lost) = whole.split_once(' ').expect("two frames");
    assert_eq!(judged(whole, newest_lost), they_lost);
    assert_eq!(judged(whole, "LDeoptStorm$Step;apply:0 LDeoptStorm$Round;descend:0"), they_lost);
    // The same losses in ours are never theirs.
    assert_eq!(judged(newest_lost, whole), undecided);
    assert_eq!(judged("LDeoptStorm$Step;apply:0 LDeoptStorm$Round;descend:0", whole), undecided);
    let middle_lost = whole.replace("LDeoptStorm$Round;descend:53 LDeoptStorm$Round;descend:35 ", "");
    assert_eq!(judged(&middle_lost, newest_lost), undecided);
    let elsewhere = "Ljava/lang/Other;length:-1 LDeoptStorm;main:58";
    assert_eq!(judged(elsewhere, "LDeoptStorm;main:58").elsewhere, 1);
    assert_eq!(judged(elsewhere, "Ljava/lang/Other;length:0"), they_lost);
    assert_eq!(judged("Ljava/lang/Other;length:0", elsewhere).elsewhere, 1);
}
