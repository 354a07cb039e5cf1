//! The agent alone writes a recording file, without a collector or `tickwalk record`.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk, on_jdks};

on_jdks! { concurrent 11, 25;
    fn recording_without_collector(jdk) {
        let run = Workload::new("TightLoop").argument(2).record_to_file(jdk, "interval=10ms");
        run.assert_exit_code(0);
        assert_eq!(run.stderr, "", "the agent printed something");
        run.assert_method_time("TightLoop.spin", INTERVAL_NS);
    }
}

on_jdks! { concurrent 25;
    fn recording_of_a_killed_program_is_readable(jdk) {
        // The file is written once a second.
        let run = Workload::new("Burner").argument(60).kill_after_cpu_ns(2_000_000_000).record_to_file(jdk, "");
        run.assert_exit_code(128 + 9);
        assert!(run.stacks().ns_below("Burner.burn") > 0, "nothing readable in the cut file");
    }
}

on_every_jdk! { concurrent;
    /// Bytes that a sample adds to a recording when most stacks are known, statistics included: the difference between
    /// a longer and a shorter run. Without compilers, whose stacks are new all the time while a program starts.
    fn a_sample_takes_at_most_20_bytes(jdk) {
        let run = |seconds: f64| {
            let workload = Workload::new("TightLoop").argument(seconds).jvm_option("-Xint");
            let run = workload.record_option("--interval=1ms").record(jdk);
            run.assert_exit_code(0);
            let bytes = std::fs::metadata(&run.recording).expect("a recording").len();
            (bytes, run.summary().samples)
        };
        let (shorter, longer) = (run(1.0), run(8.0));
        let (bytes, samples) = (longer.0.saturating_sub(shorter.0), longer.1.saturating_sub(shorter.1));
        assert!(samples >= 1_500, "{shorter:?} {longer:?}");
        assert!(bytes <= 20 * samples, "{bytes} bytes of {samples} samples: {shorter:?} {longer:?}");
    }
}

on_jdks! { concurrent 25;
    /// Text that looks like a secret in the program's arguments is nowhere in the recording, and the rest is.
    fn secrets_of_the_command_line_stay_in_the_process(jdk) {
        let run = Workload::new("TightLoop")
            .argument(0.5)
            .argument("--db.password=quokka")
            .argument("--key-secret")
            .argument("two wombats")
            .argument("jdbc:postgresql://me:numbat@host/shop")
            .argument("--pin=dingo")
            .argument("--port=4711")
            .record_to_file(jdk, "redact=pin");
        run.assert_exit_code(0);
        let recording = std::fs::read(&run.recording).expect("a recording");
        let has = |text: &str| recording.windows(text.len()).any(|window| window == text.as_bytes());
        for secret in ["quokka", "wombat", "numbat", "dingo"] {
            assert!(!has(secret), "{secret} is in the recording");
        }
        let expected = "TightLoop 0.5 --db.password=*** --key-secret *** jdbc:postgresql://me:***@host/shop --pin=*** --port=4711";
        assert!(has(expected), "the rest of the command line is missing");
    }
}
