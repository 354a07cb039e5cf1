//! Every output states the mode of a profile that is not of CPU time.

use std::collections::BTreeMap;
use std::io::Read;

use crate::support::{INTERVAL_NS, Stream, small};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use profile::api::question::answer;
use profile::export::parquet::Table;
use profile::export::{Options, firefox, jfr, otlp, parquet, pprof, speedscope, table, text};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::source::Source;
use profile::source::recording::{RecordingReader, Recordings};
use profile::ui::standalone;
use proto::v1::{FrameKind, Mode, Statistics, ThreadAccount, ThreadKind, agent_message::Body};
use serde_json::Value;

const NOW_NS: u64 = 1_790_000_100_000_000_000;
/// In the order of [`Mode`]'s numbers.
const MODES: [Mode; 2] = [Mode::CpuTime, Mode::Wall];

fn stream(mode: Mode) -> Stream {
    let mut stream = small();
    stream.set_mode(mode);
    stream
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

fn written(write: impl Fn(&ProcessProfile, &mut Vec<u8>), mode: Mode) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&stream(mode).profile(), &mut bytes);
    bytes
}

/// Two processes, one of each mode.
fn mixed() -> Recordings {
    let mut wall = stream(Mode::Wall);
    wall.rename(0xbee);
    let bytes = [stream(Mode::CpuTime).bytes(), wall.bytes()].concat();
    Recordings::of(RecordingReader::new(&bytes[..]).expect("a recording"))
}

fn asked(recording: &dyn Source, question: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let answer = answer(recording, question, &pairs, NOW_NS).expect("an answer");
    String::from_utf8(answer.bytes).expect("text")
}

#[test]
fn the_sample_type_of_pprof() {
    // A text of the table of strings has its length before it.
    for (mode, expected) in MODES.into_iter().zip([[true, false], [false, true]]) {
        let bytes = written(|profile, out| pprof::write(profile, out).expect("memory"), mode);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
        assert_eq!(["\u{3}cpu", "\u{4}wall"].map(|name| has(&plain, name)), expected, "{mode:?}");
        assert_eq!(has(&plain, "mode=wall: samples stand for"), mode == Mode::Wall);
    }
    let bytes = written(|profile, out| pprof::write(profile, out).expect("memory"), Mode::Jvmti);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
    assert!(has(&plain, "cpu_at_safepoints") && has(&plain, "mode=jvmti: samples stand for"));
}

#[test]
fn processes_of_both_modes_are_two_sample_types_of_pprof() {
    let profiles = [Mode::CpuTime, Mode::Wall].map(|mode| Ok(stream(mode).profile()));
    let mut bytes = Vec::new();
    pprof::write_each(Box::new(profiles.into_iter()), &mut bytes).expect("memory");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
    assert!(has(&plain, "\u{3}cpu") && has(&plain, "\u{4}wall"));
}

#[test]
fn the_period_type_of_otlp() {
    for (mode, name) in MODES.into_iter().zip(["cputime", "wall"]) {
        let bytes = written(|profile, out| otlp::write(profile, out).expect("memory"), mode);
        assert!(has(&bytes, "tickwalk.mode") && has(&bytes, name));
        assert_eq!(["\u{3}cpu", "\u{4}wall"].map(|name| has(&bytes, name)).into_iter().position(|is| is), {
            Some(usize::from(mode == Mode::Wall))
        });
    }
    let bytes = written(|profile, out| otlp::write(profile, out).expect("memory"), Mode::Jvmti);
    assert!(has(&bytes, "\u{11}cpu_at_safepoints") && has(&bytes, "jvmti"));
}

/// Number of events by type in a flight recording of one chunk.
fn events(chunk: &[u8]) -> BTreeMap<u64, u64> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..56).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a number ends");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let (mut counts, mut rest) = (BTreeMap::new(), &chunk[68..]);
    while !rest.is_empty() {
        let mut fields = rest;
        let size = number(&mut fields) as usize;
        *counts.entry(number(&mut fields)).or_default() += 1;
        rest = &rest[size..];
    }
    counts
}

/// Number of intervals that the samples of a profile stand for, at least one each.
fn intervals(profile: &ProcessProfile) -> u64 {
    let interval_ns = profile.hello().interval_ns;
    let of = |ns: u64| (ns + interval_ns / 2) / interval_ns;
    profile.samples().iter().map(|sample| of(sample.cpu_ns).max(u64::from(sample.count))).sum()
}

#[test]
fn events_of_jfr() {
    let written =
        |mode, options| written(|profile, out| jfr::write(profile, options, out).expect("memory"), mode);
    let samples = stream(Mode::CpuTime).profile().total().samples;
    let weighed = Options { cpu_time_samples: true, ..Options::default() };
    let of = |bytes: &[u8], number: u64| {
        let found = events(bytes).into_iter().filter(|(_, count)| *count == number);
        found.map(|(class, _)| class).collect::<Vec<_>>()
    };
    let cpu = of(&written(Mode::CpuTime, weighed), samples);
    let execution = of(&written(Mode::CpuTime, Options::default()), samples);
    assert!(cpu.len() == 1 && execution.len() == 1 && cpu != execution, "{cpu:?} {execution:?}");
    // Of wall time each interval is an event, because readers count events.
    for options in [Options::default(), weighed] {
        let wall = events(&written(Mode::Wall, options));
        assert_eq!(wall.get(&execution[0]), Some(&intervals(&stream(Mode::Wall).profile())));
        assert_eq!(wall.get(&cpu[0]), None);
    }
    let state = |mode| {
        let bytes = written(mode, Options::default());
        ["STATE_DEFAULT", "STATE_UNKNOWN"].map(|state| has(&bytes, state))
    };
    assert_eq!((state(Mode::CpuTime), state(Mode::Wall)), ([true, false], [false, true]));
}

#[test]
fn names_in_other_files() {
    let speedscope = |profile: &ProcessProfile, out: &mut Vec<u8>| {
        speedscope::write(profile, Options::default(), out).expect("memory");
    };
    let firefox = |profile: &ProcessProfile, out: &mut Vec<u8>| firefox::write(profile, out).expect("memory");
    let json = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).expect("JSON");
    for (mode, time) in MODES.into_iter().zip(["", ", wall time"]) {
        let name = format!("{}{time}", stream(mode).profile().session().service());
        assert_eq!(json(written(speedscope, mode))["name"], name);
        assert_eq!(json(written(firefox, mode))["meta"]["product"], name);
    }
    let samples = |profile: &ProcessProfile, out: &mut Vec<u8>| {
        parquet::write(profile, Table::Samples, out).expect("memory");
    };
    for (mode, name) in MODES.into_iter().zip(["cputime", "wall"]) {
        let reader = SerializedFileReader::new(bytes::Bytes::from(written(samples, mode))).expect("a file");
        let metadata = reader.metadata().file_metadata().key_value_metadata().expect("metadata").clone();
        let stated = metadata.iter().find(|entry| entry.key == "tickwalk.mode").expect("the mode");
        assert_eq!(stated.value.as_deref(), Some(name));
    }
}

#[test]
fn reports_and_answers() {
    let modes = [
        (Mode::CpuTime, "cputime", "CPU time"),
        (Mode::Wall, "wall", "wall time"),
        (Mode::Jvmti, "jvmti", "CPU time at safepoints"),
    ];
    for (mode, name, time) in modes {
        let recording = stream(mode).recording();
        let report = asked(&recording, "top", &[]);
        assert!(report.contains(&format!("of {time} explained")), "{report}");
        assert!(report.contains(&format!("by self {time}")), "{report}");
        assert_eq!(report.contains(&format!("mode={name}: ")), mode != Mode::CpuTime, "{report}");
        let json = |question, pairs: &[(&str, &str)]| {
            serde_json::from_str::<Value>(&asked(&recording, question, pairs)).expect("JSON")
        };
        assert_eq!(json("summary", &[])["mode"], name);
        assert_eq!(json("methods", &[])["modes"][0], name);
        assert_eq!(json("processes", &[])["processes"][0]["mode"], name);
        assert_eq!(json("methods", &[("label", &format!("mode={name}"))])["modes"][0], name);
        let statistics = asked(&recording, "view/cpu-time-statistics", &[]);
        assert!(statistics.contains(&format!("mode                     {name}\n")), "{statistics}");
        let threads = table::threads(&stream(mode).profile(), &Selection::default(), 10).expect("threads");
        assert_eq!(threads.contains("  wall time  "), mode == Mode::Wall, "{threads}");
        let mut plain = Vec::new();
        let parts = text::Parts { account: true, stacks: 1, methods: 1, threads: false };
        text::write(&stream(mode).profile(), parts, &mut plain).expect("memory");
        assert!(has(&plain, &format!("--- {time} ---")));
        let mut page = Vec::new();
        standalone::write(&recording, &Selection::default(), NOW_NS, &mut page).expect("memory");
        assert!(has(&page, &format!("\"mode\":\"{name}\"")));
    }
}

/// A profile of wall time says what threads did, and names waits by the program's newest method.
#[test]
fn waits_are_named_by_the_program() {
    let mut stream = Stream::new();
    stream.set_mode(Mode::Wall);
    stream.thread(1, "main", ThreadKind::Java);
    let method = |stream: &mut Stream, name| stream.frame(FrameKind::C2, name);
    let [lock, take, queue, park, main] = [
        "shop/Cart.lock",
        "shop/Queue.take",
        "java/util/concurrent/LinkedBlockingQueue.take",
        "jdk/internal/misc/Unsafe.park",
        "shop/Main.main",
    ]
    .map(|name| method(&mut stream, name));
    let futex = stream.frame(FrameKind::Native, "__futex_abstimed_wait_common");
    let enter = stream.frame(FrameKind::Vm, "ObjectMonitor::enter");
    for (frames, state, samples) in [
        (&[futex, enter, lock, main][..], "waiting", 50),
        (&[futex, park, queue, take, main], "waiting", 30),
        (&[park, queue], "waiting", 10),
        // A monitor that is free is entered without waiting.
        (&[enter, lock, main], "running", 10),
    ] {
        let stack = stream.stack(frames, &format!("end_of_stack {state}"));
        (0..samples).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
    }
    stream.goodbye();
    let text = asked(&stream.recording(), "top", &[]);
    for line in [
        "running 10.0 %, blocked 50.0 %, waiting 40.0 %",
        "  50.0 %      500 ms  blocked  shop.Cart.lock",
        "  30.0 %      300 ms  waiting  shop.Queue.take",
        "  10.0 %      100 ms  waiting  [no method of the program]",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    // The words of the first line select: blocked is a part of waiting.
    let recording = stream.recording();
    let selected = |state| asked(&recording, "top", &[("state", state)]);
    assert!(selected("blocked").contains("\nblocked 100.0 %\n"), "{}", selected("blocked"));
    assert!(selected("waiting").contains("\nblocked 55.6 %, waiting 44.4 %\n"), "{}", selected("waiting"));
    assert!(selected("running").contains("\nrunning 100.0 %\n"), "{}", selected("running"));
    let cpu = asked(&small().recording(), "top", &[]);
    assert!(!cpu.contains("Waits by"), "{cpu}");
}

/// Sums of CPU time and wall time have no meaning, so every answer says that it has such sums.
#[test]
fn sums_of_several_modes_are_stated() {
    let both = mixed();
    let texts = [
        "top",
        "tree",
        "callers/text",
        "lines/text",
        "view/hot-methods",
        "view/cpu-time-hot-methods",
        "view/threads",
        "summary/text",
        "diff/text",
    ];
    let parameters = |question: &str| match question {
        "callers/text" | "callees" | "callers" | "lines" | "lines/text" => {
            vec![("method", "com.example.Work.run")]
        }
        _ => Vec::new(),
    };
    let warning = "warning: the sums mix modes whose times differ in meaning (cputime, wall); select one";
    for question in texts {
        let ask = |more: &[(&'static str, &'static str)]| {
            asked(&both, question, &[&parameters(question)[..], more].concat())
        };
        assert!(ask(&[]).contains(warning), "{question}: {}", ask(&[]));
        let one = ask(&[("label", "mode=wall")]);
        assert!(!one.contains("mix modes"), "{question}: {one}");
    }
    for question in ["flamegraph", "callers", "callees", "methods", "lines", "threads", "timeline", "diff"] {
        let modes = |more: &[(&'static str, &'static str)]| {
            let text = asked(&both, question, &[&parameters(question)[..], more].concat());
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let place = match question {
                "timeline" => "/modes",
                "diff" => "/spans/after/modes",
                _ => "/span/modes",
            };
            answer.pointer(place).cloned()
        };
        assert_eq!(modes(&[]), Some(Value::from(vec!["cputime", "wall"])), "{question}");
        assert_eq!(modes(&[("label", "mode=wall")]), None, "{question}");
    }
    // Both sides of a comparison are warned of, and equal warnings are one.
    for after in [&[][..], &[("after.label", "mode=jvmti")]] {
        let text = asked(&both, "diff/text", after);
        assert_eq!(text.matches("mix modes").count(), 1, "{after:?}: {text}");
    }
    let of_sums = |more: &[(&str, &str)]| {
        let answer: Value = serde_json::from_str(&asked(&both, "processes", more)).expect("JSON");
        assert_eq!(answer["warnings"], Value::Array(Vec::new()), "nothing is left out");
        answer["warning_of_sums"].as_str().map(|text| warning.contains(text.split(';').next().unwrap()))
    };
    assert_eq!((of_sums(&[]), of_sums(&[("label", "mode=wall")])), (Some(true), None));
    let methods: Value = serde_json::from_str(&asked(&both, "methods", &[])).expect("JSON");
    assert!(
        methods["warnings"][0].as_str().is_some_and(|text| warning.contains(text.split(';').next().unwrap()))
    );
}

/// Adds a sample of a thread of its own, whose newest frame has the name of its state.
fn sample_with_state(stream: &mut Stream, thread: u32, state: &str, samples: u32) {
    stream.thread(thread, state, ThreadKind::Java);
    let frame = stream.frame(FrameKind::C2, &format!("shop/Main.{state}"));
    let stack = stream.stack(&[frame], &format!("end_of_stack {state}"));
    (0..samples).for_each(|_| stream.sample(thread, stack, INTERVAL_NS));
}

#[test]
fn flight_recordings_of_wall_time_have_the_states_of_threads() {
    let states = |of: &[&str]| {
        let mut stream = Stream::new();
        stream.set_mode(Mode::Wall);
        (1..).zip(of).for_each(|(thread, state)| sample_with_state(&mut stream, thread, state, 1));
        stream.goodbye();
        let mut bytes = Vec::new();
        jfr::write(&stream.profile(), Options::default(), &mut bytes).expect("memory");
        ["STATE_RUNNABLE", "STATE_SLEEPING", "STATE_UNKNOWN"].map(|state| has(&bytes, state))
    };
    assert_eq!(states(&["running"]), [true, false, false]);
    assert_eq!(states(&["waiting"]), [false, true, false]);
    assert_eq!(states(&["running", "waiting"]), [true, true, false]);
}

/// The kernel's delay of a thread is a part of its running time, and is known of whole sessions only.
#[test]
fn time_without_a_processor_is_a_part_of_running_time() {
    let mut stream = Stream::new();
    stream.set_mode(Mode::Wall);
    sample_with_state(&mut stream, 1, "running", 10);
    sample_with_state(&mut stream, 2, "waiting", 10);
    let account = |thread, run_delay_ns| ThreadAccount {
        thread,
        kernel_ns: 10 * INTERVAL_NS,
        sampled_ns: 10 * INTERVAL_NS,
        samples: 10,
        run_delay_ns: Some(run_delay_ns),
        ..Default::default()
    };
    // The second thread never ran, so its delay belongs to the profiler's signals.
    let threads = vec![account(1, 4 * INTERVAL_NS), account(2, INTERVAL_NS)];
    stream.send(Body::Statistics(Statistics { threads, samples: 20, requests: 20, ..Default::default() }));
    stream.goodbye();
    let recording = stream.recording();
    let text = asked(&recording, "top", &[]);
    assert!(text.contains("running 30.0 %, without a processor 20.0 %, waiting 50.0 %\n"), "{text}");
    let json = |pairs: &[(&str, &str)]| {
        let text = asked(&recording, "top", &[&[("json", "true")], pairs].concat());
        serde_json::from_str::<Value>(&text).expect("JSON")["states"].clone()
    };
    let times = |states: Value| ["running_ns", "runnable_ns", "waiting_ns"].map(|name| states[name].as_u64());
    assert_eq!(times(json(&[])), [6, 4, 10].map(|samples| Some(samples * INTERVAL_NS)));
    assert_eq!(times(json(&[("state", "running")])), [10, 0, 0].map(|samples| Some(samples * INTERVAL_NS)));
}
