//! The options of the agent, each defined once: name, value, default, range, meaning, where it applies, what sets it.
//!
//! The parser takes the forms of its messages from here, the table for users its rows (a test compares them), and the
//! command `tickwalk` its flags, their help and the man pages.

use super::options::{Mode, Options};
use super::values::{
    ABANDONED_AFTER, END_SILENCES, INTERVALS, MAX_STACK_RANGE, PAUSE_BUDGETS, WINDOW_RANGE, Wrong, budget,
    clock, collector, form, level, mode, name, put, put_some, read_token, seconds, set_debug, set_depth,
    set_label, set_rate, signal, size, switch, time, unless,
};
use crate::kinds::redaction::Redaction;
use crate::kinds::{debug, dumps, file_name};

#[derive(Clone, Copy, Debug)]
pub struct AgentOption {
    pub name: &'static str,
    /// Placeholder of the value; empty if the option has none.
    pub value: &'static str,
    /// Value without the option.
    pub default: &'static str,
    /// Accepted values, for the table.
    pub range: &'static str,
    /// Accepted form, for messages: "... is not FORM".
    pub form: &'static str,
    pub meaning: &'static str,
    /// Modes in which the option has an effect.
    pub modes: &'static [Mode],
    /// True if the verbs of the command that begin a profile have a flag of this name.
    pub is_flag: bool,
    /// The process that can check a value beyond its form.
    pub checked: Checked,
    /// Reads a value and sets the option.
    pub(crate) set: fn(&mut Options, &str) -> Result<(), Wrong>,
}

/// The process that can check a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Anywhere,
    /// It is a pattern of a path, whose variables are those of the JVM's environment.
    Pattern,
    /// Only in the JVM, which has its files.
    InJvm,
}

const ALL: [Mode; 4] = [Mode::CpuTime, Mode::Wall, Mode::Jvmti, Mode::Api];
const PROFILES: [Mode; 3] = [Mode::CpuTime, Mode::Wall, Mode::Jvmti];
/// Modes in which signals arrive and stacks are copied.
const TIMERS: [Mode; 2] = [Mode::CpuTime, Mode::Wall];
const CPU_TIME: [Mode; 1] = [Mode::CpuTime];

/// The common part of most options.
const OPTION: AgentOption = AgentOption {
    name: "",
    value: "",
    default: "",
    range: "",
    form: "",
    meaning: "",
    modes: &PROFILES,
    is_flag: false,
    checked: Checked::Anywhere,
    set: |_, _| Ok(()),
};

impl AgentOption {
    pub fn of(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|option| option.name == name)
    }

    /// Returns whether the option is given without a value.
    pub fn is_switch(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the default as it is written, if it has a form that can be written.
    pub fn default_value(&self) -> Option<&'static str> {
        self.default.strip_prefix('`')?.strip_suffix('`').filter(|value| !value.contains('`'))
    }
}

/// All options, in the order of the table.
pub static OPTIONS: [AgentOption; 36] = [
    AgentOption {
        name: "mode",
        value: "MODE",
        default: "`cputime`",
        range: "`cputime`, `wall`, `jvmti`, `api`",
        form: "'cputime', 'wall', 'jvmti' or 'api'",
        meaning: "`cputime`: sample CPU time; `wall`: sample wall time, of waiting threads as well; `jvmti`: sample CPU time by the stacks of safepoints, to see their bias; `api`: offer the stack-walk API and nothing else, with `log` and `strict` only",
        modes: &ALL,
        is_flag: true,
        set: |o, v| put(&mut o.mode, mode(v)),
        ..OPTION
    },
    AgentOption {
        name: "interval",
        value: "T",
        default: "`10ms`",
        range: "10us to 60s; units ns to d",
        form: "a time between 10us and 60s, as in 10ms (units ns, us, ms, s, m, h, d)",
        meaning: "CPU time between two samples of a thread; with `mode=wall` wall time, at least 1ms for each thread of the process",
        is_flag: true,
        set: |o, v| put(&mut o.interval, time(v, INTERVALS)).map(|()| o.rate = None),
        ..OPTION
    },
    AgentOption {
        name: "rate",
        value: "N/s",
        form: "samples per second of the whole machine, as in 500/s, that make an interval of 10us to 60s",
        meaning: "samples per second of the whole machine; sets the interval to processors / N and follows their number; with `mode=wall` to threads / N, in place of 1ms for each",
        is_flag: true,
        set: set_rate,
        ..OPTION
    },
    AgentOption {
        name: "budget",
        value: "P%",
        default: "none",
        range: "0.1% to 50%",
        form: "a share of the program's CPU time between 0.1% and 50%, as in 1%",
        meaning: "most CPU time of the profiler, as a share of the program's; the interval grows to keep it, up to 1s",
        modes: &CPU_TIME,
        is_flag: true,
        set: |o, v| put_some(&mut o.budget_ppm, budget(v)),
        ..OPTION
    },
    AgentOption {
        name: "clock",
        value: "CLOCK",
        default: "`timer`",
        range: "`timer`, `perf`",
        form: "'timer' or 'perf'",
        meaning: "`timer`: a CPU timer for each thread, which expires at the kernel's ticks; `perf`: a perf event for each thread, which expires at any time",
        modes: &CPU_TIME,
        is_flag: true,
        set: |o, v| put(&mut o.clock, clock(v)),
        ..OPTION
    },
    AgentOption {
        name: "signal",
        value: "N",
        default: "first free real-time signal, or SIGURG with `clock=perf`",
        range: "`PROF` or a real-time signal; 23 or 28 with `clock=perf`",
        form: "a signal that the JVM does not use (27 = SIGPROF, or a real-time signal; with clock=perf 23 = SIGURG or 28 = SIGWINCH)",
        meaning: "signal of the timers",
        modes: &TIMERS,
        is_flag: true,
        set: |o, v| put_some(&mut o.signal, signal(v)),
        ..OPTION
    },
    AgentOption {
        name: "collector",
        value: "ADDR",
        range: "`unix:PATH`, `HOST:PORT` or `tls:HOST:PORT`",
        form: "unix:PATH, HOST:PORT or tls:HOST:PORT",
        meaning: "stream to a collector (`tickwalk collect`)",
        set: |o, v| put_some(&mut o.collector, collector(v)),
        ..OPTION
    },
    AgentOption {
        name: "ca",
        value: "PATH",
        default: "the system's",
        range: "PEM",
        form: "a path",
        meaning: "certificates trusted for `tls:`",
        set: |o, v| put_some(&mut o.certificates, Some(v.into())),
        ..OPTION
    },
    AgentOption {
        name: "token",
        value: "TEXT",
        form: "a text",
        meaning: "shared secret",
        set: |o, v| put(&mut o.token, Some(v.to_owned())),
        ..OPTION
    },
    AgentOption {
        name: "tokenfile",
        value: "PATH",
        form: "a path",
        meaning: "file with the shared secret in its first line",
        checked: Checked::InJvm,
        set: |o, v| put(&mut o.token, Some(read_token(v)?)),
        ..OPTION
    },
    AgentOption {
        name: "insecure",
        default: "off",
        form: "given without a value",
        meaning: "allow unencrypted TCP beyond this machine",
        set: |o, _| put(&mut o.insecure, Some(true)),
        ..OPTION
    },
    AgentOption {
        name: "window",
        value: "SIZE",
        default: "`4m`",
        range: "16k to 256m",
        form: "a size between 16k and 256m, as in 4m",
        meaning: "bytes kept while the collector is away; beyond, samples are merged",
        set: |o, v| put(&mut o.window, size(v, WINDOW_RANGE)),
        ..OPTION
    },
    AgentOption {
        name: "exitwait",
        value: "TIME",
        default: "`80ms`",
        range: "0ms to 60s",
        form: "a time up to 60s, as in 80ms (units ns, us, ms, s, m, h, d)",
        meaning: "how long the JVM's exit waits for a collector that acknowledges nothing",
        set: |o, v| put(&mut o.end_silence, time(v, END_SILENCES)),
        ..OPTION
    },
    AgentOption {
        name: "abandon",
        value: "TIME",
        default: "`never`; `10s` from `record` and `attach`",
        range: "`never`, or from 1s on",
        form: "'never' or a time of at least 1s, as in 10s (units ns, us, ms, s, m, h, d)",
        meaning: "time without a connection to the collector after which it is given up; the profile ends if it has no other destination",
        set: |o, v| put(&mut o.abandon, unless(v, "never", |v| time(v, ABANDONED_AFTER))),
        ..OPTION
    },
    AgentOption {
        name: "file",
        value: "PATH",
        default: "`%p.tickwalk` without `collector=`",
        range: "`%p` process id, `%t` seconds since the epoch, `%h` host, `%{NAME}` environment",
        form: "a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        meaning: "write a recording; with the suffix `.html`, `.jfr`, `.collapsed`, `.txt`, `.pb.gz` or `.otlp` that format, when the profile ends",
        checked: Checked::Pattern,
        set: |o, v| put_some(&mut o.pattern, Some(v.to_owned())),
        ..OPTION
    },
    AgentOption {
        name: "duration",
        value: "TIME",
        default: "until the end",
        range: "from 1s on; a number alone is in seconds",
        form: "a time of at least 1s, as in 30s (units s, m, h, d)",
        meaning: "end the profile by itself",
        set: |o, v| put_some(&mut o.duration, seconds(v)),
        ..OPTION
    },
    AgentOption {
        name: "loop",
        value: "TIME",
        default: "off",
        range: "as `duration`; `file` needs `%t`",
        form: "a time of at least 1s, as in 1h (units s, m, h, d)",
        meaning: "end the profile and begin the next one, with a file of its own",
        set: |o, v| put_some(&mut o.repeats_after, seconds(v)),
        ..OPTION
    },
    AgentOption {
        name: "threads",
        value: "NAMES",
        default: "all",
        range: "names separated by `:`; `*` stands for any text, `kind=KIND` for `java`, `compiler`, `gc`, `vm` or `native` threads",
        form: "names of threads separated by colons, in which * stands for any text, or kind=java, compiler, gc, vm or native",
        meaning: "sample these threads only; the CPU time of others is in the account, by the cause `not_chosen`",
        is_flag: true,
        set: |o, v| form(o.threads.sample(v)),
        ..OPTION
    },
    AgentOption {
        name: "skipthreads",
        value: "NAMES",
        default: "none",
        range: "as `threads`",
        form: "names of threads separated by colons, in which * stands for any text, or kind=java, compiler, gc, vm or native",
        meaning: "do not sample these threads",
        is_flag: true,
        set: |o, v| form(o.threads.skip(v)),
        ..OPTION
    },
    AgentOption {
        name: "native",
        value: "no",
        default: "`yes`",
        range: "`yes`, `no`",
        form: "'no' to leave out frames of native libraries, or 'yes'",
        meaning: "frames of native libraries in stacks",
        modes: &TIMERS,
        is_flag: true,
        set: |o, v| put(&mut o.shown.native, switch(v)),
        ..OPTION
    },
    AgentOption {
        name: "vm",
        value: "no",
        default: "`yes`",
        range: "`yes`, `no`",
        form: "'no' to leave out frames of the VM, or 'yes'",
        meaning: "frames of the VM in stacks, of code included that it has generated beside methods",
        modes: &TIMERS,
        is_flag: true,
        set: |o, v| put(&mut o.shown.vm, switch(v)),
        ..OPTION
    },
    AgentOption {
        name: "service",
        value: "NAME",
        default: "`OTEL_SERVICE_NAME`, `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, `spring.application.name`, else the main class or jar",
        form: "a name of 1 to 256 bytes",
        meaning: "name of the program in stores, exports and on the page",
        is_flag: true,
        set: |o, v| put_some(&mut o.service, name(v)),
        ..OPTION
    },
    AgentOption {
        name: "label",
        value: "KEY=VALUE",
        default: "none",
        range: "up to 32, one option each",
        form: "KEY=VALUE, as in zone=eu-1, up to 32 times",
        meaning: "label of the process, to select by (`--label KEY=VALUE`)",
        is_flag: true,
        set: set_label,
        ..OPTION
    },
    AgentOption {
        name: "gcdrain",
        value: "TIME",
        default: "`200us`",
        range: "`off` to 100ms",
        form: "'off' or a time up to 100ms, as in 200us (units ns, us, ms, s, m, h, d)",
        meaning: "how long a garbage collection pause may wait for samples to be named; five times as long in the first two seconds of a profile",
        is_flag: true,
        set: |o, v| {
            put(
                &mut o.pause_budget,
                unless(v, "off", |v| time(v, PAUSE_BUDGETS)).map(Option::unwrap_or_default),
            )
        },
        ..OPTION
    },
    AgentOption {
        name: "redact",
        value: "NAMES",
        default: "none",
        range: "names separated by `:`; `*` stands for any text",
        form: "names of arguments separated by colons, in which * stands for any text, as in *pin*:acme.license",
        meaning: "arguments of the program whose values are hidden (`***`), beside those whose names contain `password`, `secret`, `token` and the like, and credentials in URLs",
        is_flag: true,
        set: |o, v| put(&mut o.redaction, Redaction::parse(v)),
        ..OPTION
    },
    AgentOption {
        name: "maxstack",
        value: "SIZE",
        default: "`512k`",
        range: "4k to 8m",
        form: "a size between 4k and 8m, as in 512k",
        meaning: "most stack bytes copied per sample",
        modes: &TIMERS,
        is_flag: true,
        set: |o, v| put(&mut o.max_stack, size(v, MAX_STACK_RANGE).and_then(|bytes| bytes.try_into().ok())),
        ..OPTION
    },
    AgentOption {
        name: "depth",
        value: "N",
        default: "`16384`",
        range: "16 to 65536, or `N/M`",
        form: "a number of frames between 16 and 65536, as in 16384, or two up to 65536 for Java and native frames, as in 500/40",
        meaning: "most frames of a stack; `N/M`: most Java frames and most others, the newest of each",
        is_flag: true,
        set: set_depth,
        ..OPTION
    },
    AgentOption {
        name: "log",
        value: "LEVEL",
        default: "`warn`",
        range: "none, error, warn, info, debug",
        form: "one of none, error, warn, info, debug",
        meaning: "log level",
        modes: &ALL,
        is_flag: true,
        set: |o, v| put(&mut o.log, level(v)),
        ..OPTION
    },
    AgentOption {
        name: "logfile",
        value: "PATH",
        default: "standard error",
        range: "as `file`",
        form: "a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        meaning: "file to which log lines are appended",
        is_flag: true,
        checked: Checked::Pattern,
        set: |o, v| put_some(&mut o.log_file, Some(file_name::path(v).unwrap_or_else(|| v.into()))),
        ..OPTION
    },
    AgentOption {
        name: "start",
        value: "no",
        default: "`yes`",
        range: "`yes`, `no`",
        form: "'no' to wait for a start, or 'yes'",
        meaning: "load, and wait for `tickwalk start` or `attach`",
        set: |o, v| put(&mut o.starts, switch(v)),
        ..OPTION
    },
    AgentOption {
        name: "crashstacks",
        value: "PATH",
        default: "off",
        range: "as `file`, or `stderr`",
        form: "stderr or a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        meaning: "if the JVM crashes or aborts, write the stacks of all threads before it ends",
        checked: Checked::Pattern,
        set: |o, v| put_some(&mut o.dumps.crash, Some(v.to_owned())),
        ..OPTION
    },
    AgentOption {
        name: "dumpsignal",
        value: "SIGNAL",
        default: "off",
        range: "`SIGQUIT`, `SIGUSR1` or a real-time signal",
        form: "SIGQUIT, SIGUSR1 or the number of a real-time signal",
        meaning: "write the stacks of all threads when this signal arrives; a handler of the program or of the JVM runs as well",
        set: |o, v| put_some(&mut o.dumps.signal, dumps::signal(v)),
        ..OPTION
    },
    AgentOption {
        name: "dumpcpu",
        value: "P%/TIME",
        default: "off",
        range: "1% to 100000% of a processor; 1s to 1h",
        form: "a share of a processor and a time between 1s and 1h, as in 90%/10s",
        meaning: "write the stacks of all threads when the process has used more CPU time than this share over this time; once a minute at most",
        set: |o, v| put_some(&mut o.dumps.cpu, dumps::cpu_limit(v)),
        ..OPTION
    },
    AgentOption {
        name: "dumpfile",
        value: "PATH",
        default: "`%p-%t.stacks`",
        range: "as `file`, or `stderr`",
        form: "stderr or a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        meaning: "file to which the dumps of `dumpsignal` and `dumpcpu` are appended",
        checked: Checked::Pattern,
        set: |o, v| put_some(&mut o.dumps.file, Some(v.to_owned())),
        ..OPTION
    },
    AgentOption {
        name: "strict",
        default: "off",
        form: "given without a value",
        meaning: "refuse to start the JVM when profiling cannot start",
        modes: &ALL,
        set: |o, _| put(&mut o.strict, Some(true)),
        ..OPTION
    },
    AgentOption {
        name: "debug",
        value: "HOOK",
        form: debug::FORM,
        meaning: "for experiments and tests only (`design/queue-sizes.md`)",
        set: set_debug,
        ..OPTION
    },
];
