//! One message of every kind an agent sends, with every field set to a value that is not its default.

use proto::v1::{
    AgentMessage, Counter, Delivery, Dictionary, Entries, FrameKind, Goodbye, Heartbeat, Hello, Histogram,
    Lost, QueueStatistics, SampleBatch, Sampling, SelfTest, SelfTestOutcome, Statistics, Thread,
    ThreadAccount, ThreadKind, Unloading, agent_message,
};
use proto::version::{MAGIC, WIRE_VERSION};

/// The messages of an agent by the name of their golden file.
pub fn agent_messages() -> Vec<(&'static str, AgentMessage)> {
    use agent_message::Body;
    let bodies = [
        ("hello", Body::Hello(hello())),
        ("dictionary", Body::Dictionary(dictionary())),
        ("samples", Body::Samples(samples())),
        ("statistics", Body::Statistics(statistics())),
        ("heartbeat", Body::Heartbeat(Heartbeat { time_ns: 123_456_789 })),
        ("goodbye", Body::Goodbye(Goodbye { reason: "vm_death".into() })),
        (
            "samples_merged",
            Body::Samples(SampleBatch { flags: vec![0, 1, 2], count: vec![2, 1, 300], ..samples() }),
        ),
        ("statistics_delivery", Body::Statistics(Statistics { delivery: Some(delivery()), ..statistics() })),
        ("lifetime", Body::Statistics(lifetime())),
        ("sampling", Body::Statistics(sampling())),
        ("virtual_thread", Body::Dictionary(virtual_thread())),
        ("dictionary_stacks", Body::Dictionary(dictionary_stacks())),
        ("statistics_sums", Body::Statistics(sums())),
    ];
    (1u64..)
        .zip(bodies)
        .map(|(sequence, (name, body))| (name, AgentMessage { sequence, body: Some(body) }))
        .collect()
}

fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        wire_version: WIRE_VERSION,
        agent_version: "0.1.0".into(),
        session_id: 0x0123_4567_89ab_cdef,
        pid: 4321,
        jvm_version: "25.0.3+9".into(),
        jvm_name: "OpenJDK 64-Bit Server VM".into(),
        jdk_major: 25,
        command: "com.example.Main --port 8080".into(),
        host: "build-1".into(),
        interval_ns: 10_000_000,
        kernel_tick_ns: 4_000_000,
        wall_clock_ns: 1_790_000_000_000_000_000,
        monotonic_ns: 55_000_000_000,
        token: "secret".into(),
        secret: vec![7; 16],
        service: "shop".into(),
        labels: vec!["zone=a".into()],
        mode: 0,
    }
}

fn dictionary() -> Dictionary {
    let thread = Thread {
        id: 1,
        tid: 4322,
        name: "main".into(),
        kind: ThreadKind::Java.into(),
        java_id: 1,
        carrier: 0,
    };
    Dictionary { threads: vec![thread], entries: Some(entries()) }
}

fn entries() -> Entries {
    Entries {
        first_string: 3,
        string: vec!["com/example/Größe".into(), "run".into(), "()V".into(), "end_of_stack".into()],
        first_method: 1,
        method_class: vec![3],
        method_name: vec![4],
        method_signature: vec![5],
        method_source: vec![0],
        method_modifiers: vec![0x13],
        first_frame: 2,
        frame_kind: vec![FrameKind::C2.into(), FrameKind::Stub.into()],
        frame_method: vec![1, 0],
        frame_bci: vec![17, -1],
        frame_line: vec![42, 0],
        frame_symbol: vec![0, 4],
        frame_library: vec![0, 3],
        first_node: 300,
        node_parent: vec![0, 1, 1, 299],
        node_frame: vec![6, 2, 3, 2],
        ..Entries::default()
    }
}

/// With ids of stacks by content, which `dictionary` lacks, as older recordings do.
fn dictionary_stacks() -> Dictionary {
    let ids = vec![0x0123_4567_89ab_cdef, u64::MAX];
    let entries = Entries { stack_node: vec![302, 303], stack_id: ids, ..entries() };
    Dictionary { entries: Some(entries), ..Dictionary::default() }
}

fn virtual_thread() -> Dictionary {
    let thread = Thread {
        id: 9,
        tid: 4340,
        name: "request-1".into(),
        kind: ThreadKind::Virtual.into(),
        java_id: 77,
        carrier: 3,
    };
    Dictionary { threads: vec![thread], ..Dictionary::default() }
}

fn samples() -> SampleBatch {
    SampleBatch {
        first_time_ns: 55_010_000_000,
        time_delta_us: vec![0, 10_000, 3],
        thread: vec![1, 1, 2],
        node: vec![302, 303, 0],
        cpu_unit_ns: 10_000_000,
        cpu_units: vec![1, 2, 1],
        clock_shift_ms: -7_200_000,
        ..SampleBatch::default()
    }
}

fn statistics() -> Statistics {
    let histogram = Histogram { count: 3, max: 3_000, bucket: vec![7, 72, 76], bucket_count: vec![1, 1, 1] };
    let lost = Lost { cause: "queue_full".into(), count: 2, ns: 20_000_000 };
    Statistics {
        time_ns: 56_000_000_000,
        threads: vec![ThreadAccount {
            thread: 1,
            kernel_ns: 65_000_000,
            sampled_ns: 40_000_000,
            lost: vec![lost.clone()],
            samples: 3,
            carried_ns: 4_000_000,
            handed_on_ns: 5_000_000,
            ended: true,
            before_timer_ns: 1_500_000,
            ..ThreadAccount::default()
        }],
        requests: 5,
        samples: 3,
        stops: vec![Counter { name: "end_of_stack".into(), count: 3 }],
        handler_cycles: Some(histogram.clone()),
        walk_ns: Some(histogram.clone()),
        drain_ns: Some(histogram),
        drain_requests: None,
        sampler_cpu_ns: 700_000,
        queue: Some(QueueStatistics {
            capacity_bytes: 960,
            grown: 1,
            pool_bytes: 1 << 20,
            pool_exhausted: 2,
            high_water: 19,
            ..Default::default()
        }),
        process_cpu_ns: 90_000_000,
        before_timer_ns: 1_500_000,
        lost: vec![lost],
        ..Statistics::default()
    }
}

/// Class unloading and self-tests.
fn lifetime() -> Statistics {
    let histogram = Histogram { count: 2, max: 90_000, bucket: vec![70, 118], bucket_count: vec![1, 1] };
    Statistics {
        unloading: Some(Unloading {
            detector: "unload counters".into(),
            frames: 7,
            samples: 4,
            pause_added_ns: Some(histogram),
            pauses_cut_short: 1,
        }),
        self_tests: vec![SelfTest {
            capability: "names".into(),
            outcome: SelfTestOutcome::Failed.into(),
            detail: "java/lang/Object.wait".into(),
        }],
        ..Statistics::default()
    }
}

/// Periods, budget, and outcomes of requests.
fn sampling() -> Statistics {
    Statistics {
        threads: vec![ThreadAccount { thread: 1, expired_ns: 60_000_000, ..ThreadAccount::default() }],
        requests: 9,
        resolved: 7,
        failed: vec![Counter { name: "copy_end".into(), count: 2 }],
        clock_shift_ms: 1,
        sampling: Some(Sampling {
            period_ns: 12_000_000,
            shortest_ns: 4_000_000,
            changes: 3,
            replaced: 40,
            outdated: 1,
            tick_ns: 4_000_100,
            processors: 2,
            budget_ppm: 10_000,
            cost_ns: 9_000_000,
            cost_of_ns: 1_000_000_000,
        }),
        ..Statistics::default()
    }
}

/// Sums of all threads, which older recordings lack.
fn sums() -> Statistics {
    Statistics { kernel_ns: 300_000_000, sampled_ns: 290_000_000, ..Statistics::default() }
}

fn delivery() -> Delivery {
    Delivery {
        connections: 2,
        resent: 3,
        window_bytes: 70_000,
        window_limit: 4 << 20,
        merged_samples: 400,
        resolution_ns: 1_000_000_000,
        unnamed_ns: 5_000_000,
    }
}
