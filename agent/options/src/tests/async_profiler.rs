//! The words of async-profiler, as its users, its launcher and programs that embed it write them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kinds::output::{Format, Output};
use crate::{Action, Door, Mode, OptionError, Options, Request};

#[track_caller]
fn of(door: Door, text: &str) -> Request {
    Request::parse(door, text).expect(text)
}

#[track_caller]
fn check(text: &str, action: Action, format: Option<Format>) -> Request {
    let request = of(Door::Java, text);
    assert_eq!((request.action, request.output.map(|output| output.format)), (action, format), "{text}");
    request
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    for door in [Door::Java, Door::Attach] {
        let error = Request::parse(door, text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Results whose names are written as async-profiler writes them.
fn as_it_writes(format: Format) -> Output {
    Output { internal_names: true, ..Output::of(format) }
}

fn result(options: &Options) -> (&Path, Output) {
    let result = options.result.as_ref().expect("a result");
    (&result.path, result.output)
}

/// Commands of `org.openjdk.jmh.profile.AsyncProfiler` in JMH 1.37.
#[test]
fn commands_of_jmh() {
    check("version", Action::Version, None);
    let start = check("start,interval=1000000,threads=true,event=cpu", Action::Start, None);
    assert_eq!(start.options.interval, Duration::from_millis(1));
    let start = check("start,event=cpu,file=/tmp/b/jfr-cpu.jfr", Action::Start, Some(Format::Jfr));
    assert_eq!(result(&start.options), (Path::new("/tmp/b/jfr-cpu.jfr"), as_it_writes(Format::Jfr)));
    check("stop", Action::Stop, None);
    let text = check("flat=200,traces=100,event=cpu,file=/tmp/s.txt", Action::Dump, Some(Format::Text));
    let output = text.output.expect("a text");
    assert_eq!((output.flat, output.traces, output.summary), (Some(200), Some(100), false));
    assert_eq!(text.file, Some(PathBuf::from("/tmp/s.txt")));
    check("summary,flat=200,traces=200,event=cpu,file=s", Action::Dump, Some(Format::Text));
    check("collapsed,event=cpu,file=/tmp/collapsed-cpu.csv", Action::Dump, Some(Format::Collapsed));
    check("flamegraph,reverse,event=cpu,title=x,file=a.html", Action::Dump, Some(Format::Page));
    check("tree,event=cpu,file=a.html", Action::Dump, Some(Format::Page));
    check("otlp,event=cpu,file=a.pb", Action::Dump, Some(Format::Otlp));
    assert!(check("start,filter,event=cpu", Action::Start, None).filter.is_some());
}

/// Commands of async-profiler's own Java class.
#[test]
fn commands_of_the_java_class() {
    assert!(check("collapsed,total", Action::Dump, Some(Format::Collapsed)).output.expect("one").total);
    let all = check("traces", Action::Dump, Some(Format::Text)).output.expect("one");
    assert_eq!((all.traces, all.flat), (Some(usize::MAX), None));
    assert_eq!(check("flat=10", Action::Dump, Some(Format::Text)).output.expect("one").flat, Some(10));
    assert_eq!(check("start,event=ctimer,interval=0", Action::Start, None).options, Options::default());
    let recorded = check("start,file=a.tickwalk,budget=1%", Action::Start, None).options;
    assert_eq!(recorded.file.as_deref(), Some(Path::new("a.tickwalk")));
    let timed = check("start,event=cpu,timeout=30s,file=a.html", Action::Start, Some(Format::Page)).options;
    assert_eq!(timed.duration, Some(Duration::from_secs(30)));
    let periods = check("start,event=cpu,loop=1h,file=a-%t.jfr", Action::Start, Some(Format::Jfr));
    assert_eq!(periods.text, "start,event=cpu,loop=1h,file=a-%t.jfr");
    let unnamed = check("start,event=cpu,file=a", Action::Start, Some(Format::Text)).options;
    assert_eq!(result(&unnamed).1.format, Format::Text);
}

/// Commands of a plug-in of game servers and of an agent for traces.
#[test]
fn commands_of_other_programs() {
    let text = "start,event=wall,alloc=524287,interval=4000us,threads,jfr,file=a.tmp,loglevel=NONE,filter,clock=monotonic";
    let request = check(text, Action::Start, Some(Format::Jfr));
    assert_eq!(request.options.mode, Mode::Wall);
    assert_eq!(request.options.interval, Duration::from_micros(4000));
    assert_eq!(
        result(&request.options),
        (Path::new("a.tmp"), Output { threads: true, ..as_it_writes(Format::Jfr) })
    );
    assert!(request.warning_lines().is_empty(), "its log level is none: {:?}", request.warnings);
    let text = "start,jfr,event=wall,cstack=n,clock=m,interval=20ms,filter,file=f,safemode=0,alluser";
    let request = check(text, Action::Start, Some(Format::Jfr));
    assert!(!request.options.shown.native && !request.options.shown.vm);
    assert_eq!(request.warning_lines(), ["these words have no effect here: clock, safemode, alluser"]);
}

/// Words that are without effect, or that concern the result, never keep a program from being profiled.
#[test]
fn words_that_start_a_profile_by_every_door() {
    for word in [
        "collapsed",
        "jfr",
        "flamegraph",
        "tree",
        "flat=10",
        "traces=5",
        "title=x",
        "simple",
        "norm",
        "sig",
        "ann",
        "lib",
        "dot",
        "samples",
        "total",
        "quiet",
        "cstack=vm",
        "cstack=no",
        "loglevel=warn",
        "loglevel=NONE",
        "log=x.log",
        "wall=10ms",
        "wall",
        "alloc",
        "alloc=512k",
        "lock",
        "live",
        "nativemem",
        "all",
        "alluser",
        "include=*Foo*",
        "exclude=x",
        "begin=f",
        "end=f",
        "ttsp",
        "threads",
        "filter",
        "filter=1-5;7",
        "mcache",
        "memlimit=100m",
        "features=vtable,stats",
        "jfrsync",
        "jfropts=mem",
        "chunksize=1m",
        "chunktime=1h",
        "clock=tsc",
        "clock=monotonic",
        "safemode=0",
        "framebuf=1m",
        "reverse",
        "inverted",
        "minwidth=1",
        "sched",
        "nobatch",
        "no-such-word=7",
        "jstackdepth=1",
    ] {
        for door in [Door::Load, Door::Attach, Door::Java, Door::C] {
            let request = of(door, &format!("start,event=cpu,{word},file=x"));
            assert_eq!((request.action, request.options.mode), (Action::Start, Mode::CpuTime), "{word}");
            assert!(request.options.file.is_some() || request.options.result.is_some(), "{word}");
        }
    }
    for (text, mode) in [("start,cpu,interval=10ms", Mode::CpuTime), ("start,wall=10ms", Mode::Wall)] {
        let options = of(Door::Load, &format!("{text},file=x")).options;
        assert_eq!((options.mode, options.interval), (mode, Duration::from_millis(10)), "{text}");
    }
}

#[test]
fn formats_and_threads_reach_the_result_by_every_door() {
    for door in [Door::Load, Door::Attach, Door::Java, Door::C] {
        let request = of(door, "start,event=cpu,threads,total,file=x.collapsed");
        let expected = Output { threads: true, total: true, ..as_it_writes(Format::Collapsed) };
        assert_eq!(result(&request.options), (Path::new("x.collapsed"), expected));
        for (word, format) in
            [("collapsed", Format::Collapsed), ("jfr", Format::Jfr), ("flat=10", Format::Text)]
        {
            let request = of(door, &format!("start,event=cpu,{word},file=x"));
            assert_eq!(result(&request.options).1.format, format, "{word}");
        }
        let without = of(door, "start,cstack=no,file=x.html").options.shown;
        assert!(!without.native && !without.vm);
        assert!(of(door, "start,cstack=vmx,file=x.html").options.shown.native);
    }
}

/// async-profiler refuses both for its events that use timers, and a profile of all processors would be another one.
#[test]
fn a_profile_of_one_processor_is_refused() {
    for word in ["record-cpu", "target-cpu=1"] {
        check_error(&format!("start,event=ctimer,{word},file=x"), "on all processors");
    }
}

#[test]
fn words_without_effect_warn() {
    let lines = |text: &str| of(Door::Load, text).warning_lines();
    assert_eq!(lines("start,event=cpu,threads,quiet,cstack=vm,file=x.html"), [""; 0]);
    assert_eq!(
        lines("start,title=x,file=x.html"),
        ["'title' has no effect here; pages, texts and stacks have looks of their own"]
    );
    assert_eq!(
        lines("start,title=x,reverse,intervall=1ms,file=x.html"),
        [
            "these words have no effect here: title, reverse",
            "unknown option 'intervall'; did you mean interval?"
        ]
    );
    assert_eq!(
        lines("start,event=cpu,wall=10ms,file=x.html"),
        ["'wall' has no effect here; a profile samples one event; write event=wall without event=cpu"]
    );
}

/// A request for another event than CPU or wall time gives no CPU profile.
#[test]
fn other_events_are_refused() {
    for text in
        ["start,event=alloc", "start,alloc=512k", "start,event=alloc,alloc=524287,jfr,file=x", "start,lock"]
    {
        let error = Request::parse(Door::Java, text).expect_err(text).error;
        assert!(matches!(error, OptionError::Event(_)), "{text}: {error}");
    }
    check_error("start,event=alloc,file=x", "'alloc' is not sampled; write event=cpu");
    check_error("event,file=x", "option 'event' needs a value, as in event=...");
}

#[test]
fn mistakes_say_what_to_write_instead() {
    check_error("start,loop=1h,file=a.jfr", "write %t, the time, into file=");
    check_error("flat=x", "option 'flat': 'x' is not a number of rows");
    check_error("start,filter=a-5", "option 'filter': 'a-5' is not a list of kernel thread ids");
    check_error("stop,file=", "option 'file' needs a value");
    check_error("start,interval=x,file=x", "option 'interval': 'x' is not a time");
    let shortest = of(Door::Attach, "start,interval=1us,file=x");
    assert_eq!(shortest.options.interval, Duration::from_micros(10));
    assert_eq!(shortest.warnings.len(), 1, "{:?}", shortest.warnings);
    for command in ["metrics", "meminfo"] {
        let text = format!("{command},file=/tmp/asprof.12.34");
        check_error(&text, "metrics and meminfo are commands of async-profiler that Tickwalk does not have");
    }
    let error = Request::parse(Door::Java, "interval=1ms").expect_err("no command").error;
    assert_eq!(error, OptionError::NoCommand);
}

/// Commands of `asprof` in async-profiler 4.5.
#[test]
fn commands_of_the_launcher() {
    let log = "log=/tmp/asprof-log.12.34";
    let start = of(Door::Attach, &format!("start,quiet,file=/tmp/asprof.12.34,,event=cpu,{log}"));
    assert!(start.is_quiet && start.messages.as_deref() == Some(Path::new("/tmp/asprof-log.12.34")));
    assert_eq!(result(&start.options).1.format, Format::Text);
    let stop = of(Door::Attach, &format!("stop,file=/tmp/asprof.12.34,collapsed,title=a,{log}"));
    assert_eq!((stop.action, stop.output.expect("one").format), (Action::Stop, Format::Collapsed));
    assert_eq!(stop.file, Some(PathBuf::from("/tmp/asprof.12.34")));
    let status = of(Door::Attach, &format!("status,file=/tmp/asprof.12.34,,{log}"));
    assert_eq!((status.action, status.file), (Action::Status, Some(PathBuf::from("/tmp/asprof.12.34"))));
    let start = of(Door::Attach, "start,file=/tmp/a.jfr,log=/var/log/a.log");
    assert_eq!(start.options.log_file, Some(PathBuf::from("/var/log/a.log")));
    let bad = Request::parse(Door::Attach, &format!("start,interval=x,{log}")).expect_err("a mistake");
    assert!(bad.messages.is_some());
}

/// The command checks a text for another process.
#[test]
fn the_command_does_not_check_values_that_depend_on_the_jvm() {
    let text = "file=%{NO_SUCH_VARIABLE}/x,logfile=%{NO_SUCH_VARIABLE},tokenfile=/no/such/file";
    assert!(Request::parse(Door::Command, text).is_ok());
    for part in text.split(',') {
        assert!(Request::parse(Door::Load, part).is_err(), "{part}");
    }
    assert!(Request::parse(Door::Command, "interval=x").is_err());
}
