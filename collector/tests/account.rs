//! The account of CPU time closes, also when parts of it are missing.

use crate::support::{INTERVAL_NS, Stream, small};
use profile::query::flat::{Flat, MethodCost, Order};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::{NOT_RECEIVED, Summary};
use profile::source::recording::Recording;
use proto::rows::BIASED;
use proto::v1::{AgentMessage, Lost, Statistics, ThreadKind, agent_message::Body};

/// The session of the messages for which `keep` holds.
fn recording_of(mut stream: Stream, keep: impl Fn(&AgentMessage) -> bool) -> Recording {
    let mut recording = Recording::new(stream.profile().hello().clone());
    stream
        .messages()
        .iter()
        .filter(|message| keep(message))
        .cloned()
        .for_each(|message| recording.add(message));
    recording
}

fn summary(recording: &Recording) -> Summary {
    Summary::new(&ProcessProfile::whole(recording).expect("one process"))
}

fn methods(recording: &Recording, order: Order) -> Vec<MethodCost> {
    Flat::of(recording, &Selection::default(), 0).expect("a table").0.methods(order)
}

fn check_closed(summary: &Summary) {
    let cpu = &summary.cpu_ns;
    assert_eq!(cpu.kernel, cpu.sampled + cpu.lost_ns() + cpu.unfinished);
    for row in &summary.threads {
        assert_eq!(row.kernel_ns, row.sampled_ns + row.lost_ns + row.unfinished_ns, "{}", row.name);
    }
    assert!((0.0..=1.0).contains(&summary.explained));
}

#[test]
fn the_account_of_a_whole_session_closes() {
    let summary = Summary::new(&small().profile());
    check_closed(&summary);
    assert_eq!(summary.cpu_ns.sampled, 16 * INTERVAL_NS);
    // 16 sampled, 1 lost, 1 + 5 + 3 ms unfinished; what was handed on is not counted twice.
    assert_eq!(summary.cpu_ns.kernel, 17 * INTERVAL_NS + 9_000_000);
    assert_eq!(summary.cpu_ns.unfinished, 9_000_000);
    // The process used 190 ms: 3 before timers ran, 1.2 of the profiler, the rest in no account.
    assert_eq!((summary.cpu_ns.profiler, summary.cpu_ns.outside), (1_200_000, 6_800_000));
    assert_eq!(summary.explained, 160.0 / 190.0);
    assert!(summary.complete);
}

#[test]
fn a_crash_before_statistics_leaves_the_samples() {
    let summary = summary(&recording_of(small(), |message| {
        !matches!(message.body, Some(Body::Statistics(_) | Body::Goodbye(_)))
    }));
    check_closed(&summary);
    assert_eq!((summary.samples, summary.requests), (10, 10));
    assert_eq!(summary.cpu_ns.kernel, 16 * INTERVAL_NS);
    assert_eq!(summary.explained, 0.0);
    assert_eq!(summary.stops["depth_limit"], 1);
    assert!(!summary.complete);
}

#[test]
fn samples_that_never_arrived_are_lost() {
    let recording = recording_of(small(), |message| !matches!(message.body, Some(Body::Samples(_))));
    assert_eq!(recording.session().missing_messages, 1);
    let summary = summary(&recording);
    check_closed(&summary);
    assert_eq!(summary.cpu_ns.lost[NOT_RECEIVED], 16 * INTERVAL_NS);
    assert_eq!(summary.explained, 0.0);
}

#[test]
fn biased_samples_give_a_warning_with_share_and_remedy() {
    let warning = |biased: usize| {
        let mut stream = small();
        let mut recording = Recording::new(stream.profile().hello().clone());
        for message in stream.messages() {
            let mut message = message.clone();
            if let Some(Body::Samples(samples)) = &mut message.body {
                samples.flags =
                    (0..samples.node.len()).map(|row| if row < biased { BIASED } else { 0 }).collect();
            }
            recording.add(message);
        }
        let profile = ProcessProfile::whole(&recording).expect("one process");
        let warnings = Summary::new(&profile).warnings(&profile);
        warnings.into_iter().find(|warning| warning.contains("DebugNonSafepoints"))
    };
    // Two of ten samples, which is one of ten more than code with positions between safepoints has.
    assert_eq!(warning(1), None);
    let warning = warning(2).expect("a warning");
    for part in
        ["20.0 % of the samples", "method and line", "start the JVM with -XX:+UnlockDiagnosticVMOptions"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[test]
fn missing_dictionaries_give_a_warning() {
    let recording = recording_of(small(), |message| !matches!(message.body, Some(Body::Dictionary(_))));
    let top = methods(&recording, Order::SelfTime);
    assert_eq!(top.len(), 1);
    assert_eq!((top[0].name.as_str(), top[0].self_ns), ("[unknown]", 16 * INTERVAL_NS));
    let summary = summary(&recording);
    check_closed(&summary);
    assert!(summary.threads.iter().all(|row| row.name == "[unknown]" && row.kind == "native"));
}

#[test]
fn repeated_messages_change_nothing() {
    let mut stream = small();
    let mut recording = stream.recording();
    for message in stream.messages() {
        recording.add(message.clone());
    }
    assert_eq!(summary(&recording), Summary::new(&stream.profile()));
}

#[test]
fn recursion_counts_once() {
    let top = methods(&small().recording(), Order::TotalTime);
    let descend = top.iter().find(|method| method.name == "com.example.Work.descend").expect("method");
    assert_eq!((descend.self_ns, descend.total_ns), (3 * INTERVAL_NS, 3 * INTERVAL_NS));
    let main = top.iter().find(|method| method.name == "com.example.Main.main").expect("method");
    assert_eq!((main.self_ns, main.total_ns), (0, 8 * INTERVAL_NS));
}

/// The start of a JVM, the profiler and the last intervals are no loss, and a short program has nothing else.
#[test]
fn a_short_program_gets_no_warning() {
    let warned = |before_timer_ns: u64, lost_ns: u64| {
        let mut stream = Stream::new();
        stream.thread(1, "main", ThreadKind::Java);
        let stack = stream.java_stack(&["c/Main.main"]);
        (0..100).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
        let process_cpu_ns = 1_000_000_000 + before_timer_ns + lost_ns;
        let lost = vec![Lost { cause: "queue_full".into(), count: 1, ns: lost_ns }];
        let statistics = Statistics { before_timer_ns, process_cpu_ns, lost, ..Statistics::default() };
        stream.send(Body::Statistics(statistics));
        stream.goodbye();
        let profile = stream.profile();
        let warnings = Summary::new(&profile).warnings(&profile);
        warnings.iter().any(|warning| warning.contains("is explained by samples"))
    };
    assert!(!warned(300_000_000, 0), "the start of a JVM");
    assert!(warned(300_000_000, 200_000_000), "losses");
    assert!(warned(700_000_000, 0), "more than a start takes");
}

/// The user chose the threads, so the others are not lost.
#[test]
fn threads_that_were_not_chosen_are_no_loss() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let stack = stream.java_stack(&["c/Main.main"]);
    (0..100).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
    let lost = vec![Lost { cause: "not_chosen".into(), count: 0, ns: 3_000_000_000 }];
    stream.send(Body::Statistics(Statistics {
        process_cpu_ns: 4_000_000_000,
        lost,
        ..Statistics::default()
    }));
    stream.goodbye();
    let profile = stream.profile();
    let summary = Summary::new(&profile);
    assert_eq!(summary.warnings(&profile), [""; 0]);
    let expected = "100 samples, 1.00 s CPU time, 100.0 % of CPU time explained, lost 0 ms, \
        3.00 s of threads that were not chosen";
    assert_eq!(summary.sentence(), expected);
}
