//! Every option, and the messages about mistakes.

mod async_profiler;

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "hooks")]
use sampler_thread::hooks::Probe;
use sampler_thread::name::shown::{MostFrames, Shown};

use super::*;
use crate::kinds::output::Format;
use crate::options::{DEFAULT_DEPTH, DEFAULT_PAUSE_BUDGET};
use crate::table::{AgentOption, OPTIONS};

/// Returns the options of a text of `-agentpath`, of which every part has an effect.
fn parse(text: &str) -> Result<Options, OptionError> {
    let request = Request::parse(Door::Load, text).map_err(|bad| bad.error)?;
    match request.warnings.into_iter().next() {
        Some(warning) => Err(OptionError::Strict(warning)),
        None => Ok(request.options),
    }
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(parse(text).expect_err(text).to_string(), expected);
}

fn form(name: &str) -> &'static str {
    AgentOption::of(name).expect(name).form
}

#[test]
fn all_options_together() {
    let options = parse(
        "mode=cputime,interval=500us,clock=perf,signal=23,file=/tmp/a.tickwalk,maxstack=64k,depth=500,log=debug,strict",
    )
    .expect("valid");
    assert_eq!(options.interval, Duration::from_micros(500));
    assert_eq!(options.clock, ClockOption::Perf);
    assert_eq!(options.signal, Some(libc::SIGURG));
    assert_eq!(options.file, Some(PathBuf::from("/tmp/a.tickwalk")));
    assert_eq!(options.max_stack, 65_536);
    assert_eq!((options.depth, parse("file=x").expect("valid").depth), (500, DEFAULT_DEPTH));
    assert_eq!(options.log, tracing::level_filters::LevelFilter::DEBUG);
    assert!(options.strict);
}

#[test]
fn the_api_has_few_options() {
    let options = parse("mode=api,log=info,strict").expect("valid");
    assert_eq!((options.mode, options.file, options.strict), (Mode::Api, None, true));
    assert_eq!(parse("file=x").expect("valid").mode, Mode::CpuTime);
    check_error(
        "interval=1ms, mode=api",
        "option 'interval=1ms' has no effect with mode=api; leave one of them out",
    );
}

#[test]
fn units_of_interval() {
    for (text, nanos) in [("20000ns", 20_000), ("10us", 10_000), ("1ms", 1_000_000), ("2s", 2_000_000_000)] {
        let options = parse(&format!("file=x,interval={text}")).expect(text);
        assert_eq!(options.interval, Duration::from_nanos(nanos), "{text}");
    }
}

#[test]
fn pause_budgets() {
    for (text, micros) in [("off", 0), ("0us", 0), ("200us", 200), ("100ms", 100_000)] {
        let options = parse(&format!("file=x,gcdrain={text}")).expect(text);
        assert_eq!(options.pause_budget, Duration::from_micros(micros), "{text}");
    }
    assert_eq!(parse("file=x").expect("valid").pause_budget, DEFAULT_PAUSE_BUDGET);
}

#[test]
fn a_rate_is_divided_by_the_processors() {
    let interval = |text, processors| values::rate(text, processors).map(|(_, interval)| interval);
    assert_eq!(interval("500/s", 1), Some(Duration::from_millis(2)));
    assert_eq!(interval("500/s", 64), Some(Duration::from_millis(128)));
    let options = parse("file=x,rate=500/s").expect("valid");
    assert_eq!(options.rate, Some(500));
    let options = parse("file=x,rate=500/s,interval=3ms").expect("valid");
    assert_eq!((options.rate, options.interval), (None, Duration::from_millis(3)), "the later one counts");
    for text in ["0/s", "500", "500/m", "/s", "-1/s", "99999999999999999999/s", "1000000000/s"] {
        check_error(
            &format!("file=x,rate={text}"),
            &format!("option 'rate': '{text}' is not {}", form("rate")),
        );
    }
}

#[test]
fn budgets() {
    for (text, parts) in
        [("1%", 10_000), ("0.1%", 1_000), ("2.5%", 25_000), ("50%", 500_000), ("0.25%", 2_500)]
    {
        let options = parse(&format!("file=x,budget={text}")).expect(text);
        assert_eq!(options.budget_ppm, Some(parts), "{text}");
    }
    assert_eq!(parse("file=x").expect("valid").budget_ppm, None);
    for text in ["1", "0%", "0.09%", "51%", "-1%", "1.%", ".5%", "1.23456%", "1e0%", "%", "99999999999%"] {
        check_error(
            &format!("file=x,budget={text}"),
            &format!("option 'budget': '{text}' is not {}", form("budget")),
        );
    }
}

#[test]
fn mistakes_are_named() {
    check_error("file=x,interval=10", &format!("option 'interval': '10' is not {}", form("interval")));
    check_error("file=x,interval=1ns", &format!("option 'interval': '1ns' is not {}", form("interval")));
    check_error(
        "file=x,interval=99999999999999999999s",
        &format!("option 'interval': '99999999999999999999s' is not {}", form("interval")),
    );
    check_error("file=x,debug=all", &format!("option 'debug': 'all' is not {}", debug::FORM));
    check_error("file=x,gcdrain=1s", &format!("option 'gcdrain': '1s' is not {}", form("gcdrain")));
    check_error("file=x,maxstack=1g", &format!("option 'maxstack': '1g' is not {}", form("maxstack")));
    check_error("file=x,depth=65537", &format!("option 'depth': '65537' is not {}", form("depth")));
    check_error("file=x,clock=fast", "option 'clock': 'fast' is not 'timer' or 'perf'");
    check_error("intervall=1ms", "unknown option 'intervall'; did you mean interval?");
    check_error("fil=x", "unknown option 'fil'; did you mean file?");
    check_error(
        "verbose",
        "unknown option 'verbose'; the options are mode, interval, rate, budget, clock, signal, collector, ca, \
         token, tokenfile, insecure, window, exitwait, abandon, file, duration, loop, threads, skipthreads, native, vm, service, \
         label, gcdrain, redact, maxstack, depth, log, logfile, start, crashstacks, dumpsignal, dumpcpu, dumpfile, strict, debug",
    );
    check_error(
        "include=*Foo*",
        "'include' has no effect here; the agent keeps all stacks; select when you read them, as in tickwalk top --include PATTERN FILE",
    );
    check_error(
        "dumpsignal=40,signal=40",
        "options 'signal' and 'dumpsignal' name the same signal, 40; choose another one for dumpsignal=",
    );
    check_error("dumpcpu=90", &format!("option 'dumpcpu': '90' is not {}", form("dumpcpu")));
    check_error("file=%{NO_SUCH}/x", &format!("option 'file': '%{{NO_SUCH}}/x' is not {}", form("file")));
    check_error(
        "file=x.parquet",
        "option 'file': the agent does not write the format of x.parquet; write file=NAME.tickwalk, then tickwalk export -o \
         x.parquet NAME.tickwalk",
    );
    check_error("debug=queue:3g,file=x", &format!("option 'debug': 'queue:3g' is not {}", debug::FORM));
    check_error("mode=walls,file=x", "option 'mode': 'walls' is not 'cputime', 'wall', 'jvmti' or 'api'");
    check_error("file=", "option 'file' needs a value, as in file=...");
    check_error(
        "collector=nowhere",
        "option 'collector': 'nowhere' is not unix:PATH, HOST:PORT or tls:HOST:PORT",
    );
    check_error(
        "collector=tls:h",
        "option 'collector': 'tls:h' is not unix:PATH, HOST:PORT or tls:HOST:PORT",
    );
    check_error("file=x,exitwait=61s", &format!("option 'exitwait': '61s' is not {}", form("exitwait")));
    check_error("file=x,window=1", "option 'window': '1' is not a size between 16k and 256m, as in 4m");
    check_error(
        "file=x,tokenfile=/dev/null",
        "cannot read tokenfile=/dev/null: it is empty; its first line must be the token",
    );
    for signal in [27, 40] {
        check_error(
            &format!("clock=perf,signal={signal},file=x"),
            &OptionError::SignalOfTimers(signal).to_string(),
        );
    }
    check_error("signal=23,file=x", &OptionError::SignalOfEvents(23).to_string());
    check_error(
        "signal=11,file=x",
        "option 'signal': '11' is not a signal that the JVM does not use (27 = SIGPROF, or a real-time signal; \
         with clock=perf 23 = SIGURG or 28 = SIGWINCH)",
    );
}

#[test]
fn a_collector_beyond_this_machine() {
    let options =
        parse("collector=tls:h:4171,ca=/c.pem,token=t,window=1m,exitwait=2s,insecure").expect("valid");
    assert_eq!(options.collector, Some(Collector::Tls("h:4171".to_owned())));
    assert_eq!(options.certificates, Some(PathBuf::from("/c.pem")));
    assert_eq!(options.end_silence, Duration::from_secs(2));
    assert_eq!((options.token.as_str(), options.window, options.insecure), ("t", 1 << 20, true));
}

#[test]
#[cfg(not(feature = "hooks"))]
fn a_hook_that_was_not_built_is_named() {
    let error = parse("file=x,debug=stops").expect_err("a hook").to_string();
    assert!(error.contains("'stops' is a developers' hook") && error.contains("--features hooks"), "{error}");
}

#[test]
#[cfg(feature = "hooks")]
fn several_hooks() {
    let options = parse("file=x,debug=stops,debug=shift:100,debug=broken-layout").expect("valid");
    let expected = Probe { stops: true, shifted_walks: 100, ..Probe::default() };
    assert_eq!(options.debug.hooks.sampler.probe, expected);
    assert!(options.debug.hooks.broken_layout);
    let form = debug::FORM;
    for text in ["all", "shift:", "shift:x", "shift", "stops:1"] {
        let expected = format!("option 'debug': '{text}' is not {form}");
        check_error(&format!("file=x,debug={text}"), &expected);
    }
}

#[test]
fn strict_is_found_in_an_invalid_string() {
    let bad = |text| Request::parse(Door::Load, text).expect_err(text);
    let refused = bad("bogus=1,strict,interval=x");
    assert!(refused.is_strict && refused.mode == Mode::CpuTime, "{refused:?}");
    assert!(!bad("file=strict,interval=x").is_strict);
    assert_eq!(bad("interval=x,mode=api").mode, Mode::Api);
    assert_eq!(bad("strict,colour=red").to_string(), Warning::Unknown("colour".to_owned()).to_string());
    assert!(Request::parse(Door::Load, "colour=red").is_ok(), "a warning only");
}

#[test]
fn without_a_destination_the_recording_has_the_process_id() {
    let options = parse("interval=1ms").expect("valid");
    assert_eq!(options.file, Some(PathBuf::from(format!("{}.tickwalk", std::process::id()))));
    assert_eq!(parse("collector=h:1").expect("valid").file, None);
}

/// One definition an option: what the table says is what the parser does.
#[test]
fn defaults_of_the_table_change_nothing() {
    let default = parse("file=x").expect("valid");
    let mut compared = 0;
    for option in &OPTIONS {
        let Some(value) = option.default_value() else { continue };
        // The names of files depend on the time.
        if option.name.ends_with("file") {
            continue;
        }
        let options = parse(&format!("file=x,{}={value}", option.name)).expect(option.name);
        assert_eq!(options, default, "{}={value}", option.name);
        compared += 1;
    }
    assert!(compared >= 12, "{compared} options have a default that can be written");
}

#[test]
fn every_option_has_a_form_and_one_name() {
    for (place, option) in OPTIONS.iter().enumerate() {
        assert!(!option.form.is_empty() && !option.meaning.is_empty(), "{}", option.name);
        assert!(!OPTIONS[..place].iter().any(|other| other.name == option.name), "{}", option.name);
        let needs_value = parse(option.name).is_err_and(|error| matches!(error, OptionError::NoValue(_)));
        let is_word = ["threads", "start"].contains(&option.name);
        assert_eq!(needs_value, !option.is_switch() && !is_word, "{}", option.name);
    }
}

#[test]
fn an_agent_can_wait_for_a_start() {
    for (text, starts) in
        [("start=no", false), ("start", true), ("start=no,start", true), ("start=yes", true), ("", true)]
    {
        assert_eq!(parse(&format!("{text},file=x")).expect("valid").starts, starts, "{text}");
    }
    check_error("start=maybe,file=x", &format!("option 'start': 'maybe' is not {}", form("start")));
}

#[test]
fn later_texts_count_and_replace_the_destination() {
    let of = |layers: &[&str]| Request::of_layers(Door::Attach, layers).expect("valid");
    let waiting = "start=no,interval=5ms,file=a";
    let request = of(&[waiting, "start", ""]);
    assert!(request.options.starts && request.options.interval == Duration::from_millis(5));
    assert_eq!(request.options.file.as_deref(), Some("a".as_ref()));
    let request = of(&[waiting, "start", "interval=1ms,collector=unix:/s"]);
    assert!(request.options.file.is_none() && request.options.interval == Duration::from_millis(1));
    assert_eq!(request.text, "start=no,interval=5ms,start,interval=1ms,collector=unix:/s");
    assert!(!of(&[waiting, "start", "start=no"]).options.starts);
    let api = of(&["interval=5ms,budget=1%", "mode=api,strict"]);
    assert_eq!(
        (api.options.mode, api.warnings),
        (Mode::Api, vec![]),
        "defaults of the environment have no effect there"
    );
    let both = of(&["file=a", "file=b,collector=unix:/s"]).options;
    assert!(both.file.as_deref() == Some("b".as_ref()) && both.collector.is_some());
}

#[test]
fn a_collector_can_be_given_up() {
    assert_eq!(parse("abandon=10s,file=x").expect("valid").abandon, Some(Duration::from_secs(10)));
    assert_eq!(parse("abandon=10s,abandon=never,file=x").expect("valid").abandon, None);
    check_error("abandon=1ms,file=x", &format!("option 'abandon': '1ms' is not {}", form("abandon")));
}

#[test]
fn service_labels_and_the_log_file() {
    let options = parse("service=shop,label=zone=eu-1,label=tier=web,logfile=/tmp/%p.log,file=x");
    let options = options.expect("valid");
    assert_eq!(options.service.as_deref(), Some("shop"));
    assert_eq!(options.labels, ["zone=eu-1", "tier=web"]);
    assert_eq!(options.log_file, Some(format!("/tmp/{}.log", std::process::id()).into()));
    for bad in ["label=zone", "label==x", "label=zone="] {
        let value = bad.split_once('=').expect("a value").1;
        check_error(&format!("{bad},file=x"), &format!("option 'label': '{value}' is not {}", form("label")));
    }
}

#[test]
fn durations_are_those_of_the_command() {
    let duration = |text: &str| parse(&format!("file=x,duration={text}")).map(|options| options.duration);
    for (text, seconds) in [("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7_200), ("1d", 86_400)] {
        assert_eq!(duration(text), Ok(Some(Duration::from_secs(seconds))), "{text}");
    }
    let interval = parse("file=x,interval=1.5ms").expect("valid").interval;
    assert_eq!(interval, Duration::from_micros(1500));
    assert_eq!(parse("file=x,window=1.5m").expect("valid").window, 3 << 19);
    for text in ["0", "10ms", "-1s", "1w"] {
        check_error(
            &format!("file=x,duration={text}"),
            &format!("option 'duration': '{text}' is not {}", form("duration")),
        );
    }
}

#[test]
fn periods_have_files_of_their_own() {
    let options = parse("loop=1h").expect("valid");
    let name = options.file.expect("a file").display().to_string();
    assert!(name.starts_with(&format!("{}-", std::process::id())) && name.ends_with(".tickwalk"), "{name}");
    assert!(parse("loop=1h,file=/tmp/%t.jfr").expect("valid").result.is_some());
    check_error("loop=1h,file=x.tickwalk", &OptionError::SameFile.to_string());
    check_error("loop=1h,collector=h:1", &OptionError::NothingToDivide.to_string());
}

#[test]
fn other_formats_are_results() {
    let options = parse("file=/tmp/%p.html").expect("valid");
    let result = options.result.expect("a result");
    assert_eq!(result.path, PathBuf::from(format!("/tmp/{}.html", std::process::id())));
    assert_eq!(result.output.format, Format::Page);
    assert_eq!(options.file, None);
    let options = parse("file=x.html,file=x.tickwalk").expect("valid");
    assert!(options.result.is_none() && options.file.is_some(), "the later one counts");
}

#[test]
fn shown_frames() {
    let options = parse("native=no,vm=no,depth=500/40,file=x").expect("valid");
    let most = MostFrames { java: 500, native: 40 };
    assert_eq!(
        (options.shown, options.depth),
        (Shown { native: false, vm: false, most: Some(most) }, 65_536)
    );
    let options = parse("depth=500/40,depth=100,file=x").expect("valid");
    assert_eq!((options.shown, options.depth), (Shown::default(), 100));
    for text in ["0/1", "1/", "/1", "1/2/3", "65537/1"] {
        check_error(
            &format!("depth={text},file=x"),
            &format!("option 'depth': '{text}' is not {}", form("depth")),
        );
    }
}

#[test]
fn wall_time() {
    for text in ["mode=wall", "event=wall", "mode=cputime,event=wall"] {
        assert_eq!(parse(text).expect(text).mode, Mode::Wall, "{text}");
    }
    assert_eq!(parse("event=wall,mode=cputime").expect("the last one counts").mode, Mode::CpuTime);
    for (text, option) in [("mode=wall,clock=perf", "clock=perf"), ("budget=1%,event=wall", "budget=1%")] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(&format!("option '{option}' has no effect with mode=wall")), "{error}");
    }
}

#[test]
fn stacks_of_safepoints() {
    assert_eq!(parse("mode=jvmti,interval=1ms").expect("valid").mode, Mode::Jvmti);
    for (text, option) in [
        ("mode=jvmti,clock=perf", "clock=perf"),
        ("budget=1%,mode=jvmti", "budget=1%"),
        ("mode=jvmti,signal=PROF", "signal=PROF"),
        ("mode=jvmti,maxstack=64k", "maxstack=64k"),
        ("mode=jvmti,native=no", "native=no"),
        ("mode=jvmti,vm=no", "vm=no"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(&format!("option '{option}' has no effect with mode=jvmti")), "{error}");
    }
}
