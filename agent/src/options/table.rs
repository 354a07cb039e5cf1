//! The options of the agent: names, accepted values, defaults and meanings, once for all who show or accept them.
//!
//! The parser takes the forms of its messages from here, `README.md` its table (a test compares them), and the command
//! `tickwalk` its flags: `cli` compiles this file as well.

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct AgentOption {
    /// Name.
    pub name: &'static str,
    /// Placeholder of the value; empty if the option has none.
    pub value: &'static str,
    /// Value without the option.
    pub default: &'static str,
    /// Accepted values, for the table.
    pub range: &'static str,
    /// Accepted form, for messages: "... is not FORM".
    pub form: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

const fn option(
    [name, value]: [&'static str; 2],
    default: &'static str,
    range: &'static str,
    form: &'static str,
    meaning: &'static str,
) -> AgentOption {
    AgentOption { name, value, default, range, form, meaning }
}

/// All options, in the order of the table.
pub const OPTIONS: [AgentOption; 36] = [
    option(
        ["mode", "MODE"],
        "`cputime`",
        "`cputime`, `wall`, `jvmti`, `api`",
        "'cputime', 'wall', 'jvmti' or 'api'",
        "`cputime`: sample CPU time; `wall`: sample wall time, of waiting threads as well; `jvmti`: sample CPU time by the stacks of safepoints, to see their bias; `api`: offer the stack-walk API and nothing else, with `log` and `strict` only",
    ),
    option(
        ["interval", "T"],
        "`10ms`",
        "10us to 60s; units ns to d",
        "a time between 10us and 60s, as in 10ms (units ns, us, ms, s, m, h, d)",
        "CPU time between two samples of a thread; with `mode=wall` wall time, at least 1ms for each thread of the process",
    ),
    option(
        ["rate", "N/s"],
        "",
        "",
        "samples per second of the whole machine, as in 500/s, that make an interval of 10us to 60s",
        "samples per second of the whole machine; sets the interval to processors / N and follows their number; with `mode=wall` to threads / N, in place of 1ms for each",
    ),
    option(
        ["budget", "P%"],
        "none",
        "0.1% to 50%",
        "a share of the program's CPU time between 0.1% and 50%, as in 1%",
        "most CPU time of the profiler, as a share of the program's; the interval grows to keep it, up to 1s",
    ),
    option(
        ["clock", "CLOCK"],
        "`timer`",
        "`timer`, `perf`",
        "'timer' or 'perf'",
        "`timer`: a CPU timer for each thread, which expires at the kernel's ticks; `perf`: a perf event for each thread, which expires at any time",
    ),
    option(
        ["signal", "N"],
        "first free real-time signal, or SIGURG with `clock=perf`",
        "`PROF` or a real-time signal; 23 or 28 with `clock=perf`",
        "a signal that the JVM does not use (27 = SIGPROF, or a real-time signal; with clock=perf 23 = SIGURG or 28 = SIGWINCH)",
        "signal of the timers",
    ),
    option(
        ["collector", "ADDR"],
        "",
        "`unix:PATH`, `HOST:PORT` or `tls:HOST:PORT`",
        "unix:PATH, HOST:PORT or tls:HOST:PORT",
        "stream to a collector (`tickwalk collect`)",
    ),
    option(["ca", "PATH"], "the system's", "PEM", "a path", "certificates trusted for `tls:`"),
    option(["token", "TEXT"], "", "", "a text", "shared secret"),
    option(["tokenfile", "PATH"], "", "", "a path", "file with the shared secret in its first line"),
    option(["insecure", ""], "off", "", "given without a value", "allow unencrypted TCP beyond this machine"),
    option(
        ["window", "SIZE"],
        "`4m`",
        "16k to 256m",
        "a size between 16k and 256m, as in 4m",
        "bytes kept while the collector is away; beyond, samples are merged",
    ),
    option(
        ["exitwait", "TIME"],
        "`80ms`",
        "0ms to 60s",
        "a time up to 60s, as in 80ms (units ns, us, ms, s, m, h, d)",
        "how long the JVM's exit waits for a collector that acknowledges nothing",
    ),
    option(
        ["abandon", "TIME"],
        "`never`; `10s` from `record` and `attach`",
        "`never`, or from 1s on",
        "'never' or a time of at least 1s, as in 10s (units ns, us, ms, s, m, h, d)",
        "time without a connection to the collector after which it is given up; the profile ends if it has no other destination",
    ),
    option(
        ["file", "PATH"],
        "`%p.tickwalk` without `collector=`",
        "`%p` process id, `%t` seconds since the epoch, `%h` host, `%{NAME}` environment",
        "a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        "write a recording; with the suffix `.html`, `.jfr`, `.collapsed`, `.txt`, `.pb.gz` or `.otlp` that format, when the profile ends",
    ),
    option(
        ["duration", "TIME"],
        "until the end",
        "from 1s on; a number alone is in seconds",
        "a time of at least 1s, as in 30s (units s, m, h, d)",
        "end the profile by itself",
    ),
    option(
        ["loop", "TIME"],
        "off",
        "as `duration`; `file` needs `%t`",
        "a time of at least 1s, as in 1h (units s, m, h, d)",
        "end the profile and begin the next one, with a file of its own",
    ),
    option(
        ["threads", "NAMES"],
        "all",
        "names separated by `:`; `*` stands for any text, `kind=KIND` for `java`, `compiler`, `gc`, `vm` or `native` threads",
        "names of threads separated by colons, in which * stands for any text, or kind=java, compiler, gc, vm or native",
        "sample these threads only; the CPU time of others is shown as lost, by the cause `not_chosen`",
    ),
    option(
        ["skipthreads", "NAMES"],
        "none",
        "as `threads`",
        "names of threads separated by colons, in which * stands for any text, or kind=java, compiler, gc, vm or native",
        "do not sample these threads",
    ),
    option(
        ["native", "no"],
        "`yes`",
        "`yes`, `no`",
        "'no' to leave out frames of native libraries, or 'yes'",
        "frames of native libraries in stacks",
    ),
    option(
        ["vm", "no"],
        "`yes`",
        "`yes`, `no`",
        "'no' to leave out frames of the VM, or 'yes'",
        "frames of the VM in stacks, of code included that it has generated beside methods",
    ),
    option(
        ["service", "NAME"],
        "`OTEL_SERVICE_NAME`, `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, `spring.application.name`, else the main class or jar",
        "",
        "a name of 1 to 256 bytes",
        "name of the program in stores, exports and on the page",
    ),
    option(
        ["label", "KEY=VALUE"],
        "none",
        "up to 32, one option each",
        "KEY=VALUE, as in zone=eu-1, up to 32 times",
        "label of the process, to select by (`--label KEY=VALUE`)",
    ),
    option(
        ["gcdrain", "TIME"],
        "`200us`",
        "`off` to 100ms",
        "'off' or a time up to 100ms, as in 200us (units ns, us, ms, s, m, h, d)",
        "how long a garbage collection pause may wait for samples to be named; five times as long in the first two seconds of a profile",
    ),
    option(
        ["redact", "NAMES"],
        "none",
        "names separated by `:`; `*` stands for any text",
        "names of arguments separated by colons, in which * stands for any text, as in *pin*:acme.license",
        "arguments of the program whose values are hidden (`***`), beside those whose names contain `password`, `secret`, `token` and the like, and credentials in URLs",
    ),
    option(
        ["maxstack", "SIZE"],
        "`512k`",
        "4k to 8m",
        "a size between 4k and 8m, as in 512k",
        "most stack bytes copied per sample",
    ),
    option(
        ["depth", "N"],
        "`16384`",
        "16 to 65536, or `N/M`",
        "a number of frames between 16 and 65536, as in 16384, or two up to 65536 for Java and native frames, as in 500/40",
        "most frames of a stack; `N/M`: most Java frames and most others, the newest of each",
    ),
    option(
        ["log", "LEVEL"],
        "`warn`",
        "none, error, warn, info, debug",
        "one of none, error, warn, info, debug",
        "log level",
    ),
    option(
        ["logfile", "PATH"],
        "standard error",
        "as `file`",
        "a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        "file to which log lines are appended",
    ),
    option(
        ["start", "no"],
        "`yes`",
        "`yes`, `no`",
        "'no' to wait for a start, or 'yes'",
        "load, and wait for `tickwalk start` or `attach`",
    ),
    option(
        ["crashstacks", "PATH"],
        "off",
        "as `file`, or `stderr`",
        "stderr or a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        "if the JVM crashes or aborts, write the stacks of all threads before it ends",
    ),
    option(
        ["dumpsignal", "SIGNAL"],
        "off",
        "`SIGQUIT`, `SIGUSR1` or a real-time signal",
        "SIGQUIT, SIGUSR1 or the number of a real-time signal",
        "write the stacks of all threads when this signal arrives; a handler of the program or of the JVM runs as well",
    ),
    option(
        ["dumpcpu", "P%/TIME"],
        "off",
        "1% to 100000% of a processor; 1s to 1h",
        "a share of a processor and a time between 1s and 1h, as in 90%/10s",
        "write the stacks of all threads when the process has used more CPU time than this share over this time; once a minute at most",
    ),
    option(
        ["dumpfile", "PATH"],
        "`%p-%t.stacks`",
        "as `file`, or `stderr`",
        "stderr or a path, in which %p, %t, %h and %{NAME} stand for process id, time, host and a variable that is set",
        "file to which the dumps of `dumpsignal` and `dumpcpu` are appended",
    ),
    option(
        ["strict", ""],
        "off",
        "",
        "given without a value",
        "refuse to start the JVM when profiling cannot start",
    ),
    // The form depends on the build: `crate::options::debug`.
    option(["debug", "HOOK"], "", "", "", "for experiments and tests only (`design/queue-sizes.md`)"),
];
