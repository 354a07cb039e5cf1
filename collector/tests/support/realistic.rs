//! A session as a web shop on a JVM would produce it: deep stacks, many threads, all kinds of frames.

use proto::v1::agent_message::Body;
use proto::v1::{
    Counter, FrameKind, Histogram, Lost, QueueStatistics, Statistics, ThreadAccount, ThreadKind,
};

use super::{INTERVAL_NS, Stream};

/// Small and always the same: no dependency, no surprise in pictures.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

const SERVER: &[&str] = &[
    "java/lang/Thread.run",
    "org/apache/tomcat/util/threads/TaskThread$WrappingRunnable.run",
    "org/apache/tomcat/util/threads/ThreadPoolExecutor$Worker.run",
    "org/apache/tomcat/util/threads/ThreadPoolExecutor.runWorker",
    "org/apache/tomcat/util/net/SocketProcessorBase.run",
    "org/apache/tomcat/util/net/NioEndpoint$SocketProcessor.doRun",
    "org/apache/coyote/AbstractProtocol$ConnectionHandler.process",
    "org/apache/coyote/http11/Http11Processor.service",
    "org/apache/catalina/connector/CoyoteAdapter.service",
    "org/apache/catalina/core/StandardEngineValve.invoke",
    "org/apache/catalina/core/StandardHostValve.invoke",
    "org/apache/catalina/core/StandardContextValve.invoke",
    "org/apache/catalina/core/StandardWrapperValve.invoke",
    "org/apache/catalina/core/ApplicationFilterChain.doFilter",
    "org/springframework/web/filter/OncePerRequestFilter.doFilter",
    "org/apache/catalina/core/ApplicationFilterChain.doFilter",
    "org/springframework/security/web/FilterChainProxy.doFilterInternal",
    "org/apache/catalina/core/ApplicationFilterChain.doFilter",
    "jakarta/servlet/http/HttpServlet.service",
    "org/springframework/web/servlet/DispatcherServlet.doDispatch",
    "org/springframework/web/servlet/mvc/method/annotation/RequestMappingHandlerAdapter.handleInternal",
    "java/lang/invoke/LambdaForm$DMH+0x0000712340001000.invokeVirtual",
];

/// Endpoints, each with alternatives of what runs below it.
const ENDPOINTS: &[(&str, usize, &[&[&str]])] = &[
    (
        "com/example/shop/web/CatalogController.search",
        9,
        &[
            &[
                "com/example/shop/search/Index.query",
                "com/example/shop/search/Index.lambda$query$3",
                "com/example/shop/search/Scorer.score",
                "java/util/HashMap.get",
                "java/util/HashMap.hash",
                "java/lang/String.hashCode",
            ],
            &[
                "com/example/shop/search/Index.query",
                "java/util/stream/ReferencePipeline.collect",
                "java/util/stream/AbstractPipeline.copyInto",
                "java/util/ArrayList$ArrayListSpliterator.forEachRemaining",
                "com/example/shop/search/Index$$Lambda+0x0000712345678000.accept",
                "com/example/shop/search/Scorer.score",
                "java/lang/Math.log",
            ],
            &[
                "com/example/shop/search/Tokenizer.split",
                "java/util/regex/Pattern.matcher",
                "java/util/regex/Matcher.find",
                "java/util/regex/Pattern$Start.match",
                "java/util/regex/Pattern$CharProperty.match",
            ],
            &[
                "com/example/shop/search/Index.query",
                "java/util/TimSort.sort",
                "java/util/TimSort.mergeLo",
                "java/util/Comparator.lambda$comparing$77a9974f$1",
                "com/example/shop/model/Product.compareTo",
            ],
        ],
    ),
    (
        "com/example/shop/web/CartController.show",
        6,
        &[
            &[
                "com/fasterxml/jackson/databind/ObjectMapper.writeValue",
                "com/fasterxml/jackson/databind/ser/BeanSerializer.serialize",
                "com/fasterxml/jackson/databind/ser/std/BeanSerializerBase.serializeFields",
                "com/fasterxml/jackson/databind/ser/BeanPropertyWriter.serializeAsField",
                "com/fasterxml/jackson/core/json/UTF8JsonGenerator.writeString",
                "com/fasterxml/jackson/core/json/UTF8JsonGenerator._writeStringSegment",
            ],
            &[
                "com/example/shop/db/CartRepository.load",
                "org/postgresql/jdbc/PgPreparedStatement.executeQuery",
                "org/postgresql/core/v3/QueryExecutorImpl.execute",
                "org/postgresql/core/VisibleBufferedInputStream.readMore",
                "java/net/Socket$SocketInputStream.read",
                "!sun/nio/ch/NioSocketImpl.read0",
                "%__libc_recv",
            ],
            &[
                "com/example/shop/db/CartRepository.load",
                "org/postgresql/jdbc/PgResultSet.getString",
                "java/lang/String.<init>",
                "java/lang/StringCoding.countPositives",
            ],
            &[
                "java/util/zip/GZIPOutputStream.write",
                "java/util/zip/Deflater.deflate",
                "!java/util/zip/Deflater.deflateBytesBytes",
                "%deflate_slow",
                "%longest_match",
            ],
        ],
    ),
    (
        "com/example/shop/web/CheckoutController.pay",
        3,
        &[
            &[
                "javax/crypto/Cipher.doFinal",
                "com/sun/crypto/provider/GaloisCounterMode.engineDoFinal",
                "com/sun/crypto/provider/GHASH.processBlock",
                "#StubRoutines (ghash_processBlocks)",
            ],
            &[
                "com/example/shop/tax/Rules.evaluate",
                "com/example/shop/tax/Rules.evaluate",
                "com/example/shop/tax/Rules.evaluate",
                "com/example/shop/tax/Rules.evaluate",
                "java/math/BigDecimal.multiply",
                "java/math/BigInteger.multiplyToLen",
            ],
            &[
                "java/util/UUID.randomUUID",
                "java/security/SecureRandom.nextBytes",
                "sun/security/provider/SHA2.implCompress0",
            ],
        ],
    ),
];

const JIT: &[&[&str]] = &[
    &[
        "PhaseIdealLoop::build_and_optimize(LoopOptsMode)",
        "PhaseIdealLoop::split_if_with_blocks(VectorSet&, Node_Stack&)",
    ],
    &["PhaseChaitin::Register_Allocate()", "PhaseChaitin::build_ifg_physical(ResourceArea*)"],
    &["PhaseChaitin::Register_Allocate()", "PhaseIFG::SquareUp()"],
    &["Parse::Parse(JVMState*, ciMethod*, float)", "Parse::do_all_blocks()", "Parse::do_one_bytecode()"],
    &["PhaseIterGVN::optimize()", "PhaseIterGVN::transform_old(Node*)", "PhiNode::Ideal(PhaseGVN*, bool)"],
    &["Matcher::match()", "Matcher::xform(Node*, int)"],
];

const GC: &[&[&str]] = &[
    &[
        "G1ParEvacuateFollowersClosure::do_void()",
        "G1ParScanThreadState::trim_queue()",
        "G1ParScanThreadState::do_copy_to_survivor_space(G1HeapRegionAttr, oop, markWord)",
    ],
    &[
        "G1RemSet::scan_heap_roots(G1ParScanThreadStateSet*)",
        "G1ScanHRForRegionClosure::scan_heap_roots(G1HeapRegion*)",
    ],
    &["G1CMTask::do_marking_step(double, bool, bool)", "G1CMTask::drain_local_queue(bool)"],
];

/// About 30,000 samples. With `trouble`, part of the time is lost, stacks are cut and the end is missing.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn shop(trouble: bool) -> Stream {
    let mut stream = Stream::new();
    let mut random = Random(42);
    let mut accounts: Vec<(u32, u64)> = Vec::new();
    let thread = |stream: &mut Stream, name: &str, kind, samples: usize, accounts: &mut Vec<(u32, u64)>| {
        let id = accounts.len() as u32 + 1;
        stream.thread(id, name, kind);
        accounts.push((id, samples as u64));
        id
    };
    for worker in 1..=8 {
        let samples = 3_600 - worker * 250;
        let id = thread(
            &mut stream,
            &format!("http-nio-8080-exec-{worker}"),
            ThreadKind::Java,
            samples,
            &mut accounts,
        );
        for _ in 0..samples {
            let stack = request_stack(&mut stream, &mut random, trouble);
            stream.sample(id, stack, INTERVAL_NS);
        }
    }
    let native_roots = |kind: &str| match kind {
        "jit" => vec![
            "start_thread",
            "thread_native_entry(Thread*)",
            "Thread::call_run()",
            "CompileBroker::compiler_thread_loop()",
            "C2Compiler::compile_method(ciEnv*, ciMethod*, int)",
            "Compile::Compile(ciEnv*, ciMethod*, int)",
        ],
        _ => {
            vec!["start_thread", "thread_native_entry(Thread*)", "Thread::call_run()", "WorkerThread::run()"]
        }
    };
    let pools = [
        ("C2 CompilerThread0", ThreadKind::Compiler, 2_600, JIT, "jit"),
        ("GC Thread#0", ThreadKind::Gc, 700, GC, "gc"),
        ("GC Thread#1", ThreadKind::Gc, 650, GC, "gc"),
        ("GC Thread#2", ThreadKind::Gc, 610, GC, "gc"),
        ("G1 Conc#0", ThreadKind::Gc, 240, &GC[2..], "gc"),
    ];
    for (name, kind, samples, choices, roots) in pools {
        let id = thread(&mut stream, name, kind, samples, &mut accounts);
        for _ in 0..samples {
            let below = choices[random.below(choices.len())];
            let below = &below[..below.len() - random.below(2).min(below.len() - 1)];
            let roots = native_roots(roots);
            let frames: Vec<u32> = below
                .iter()
                .rev()
                .chain(roots[1..].iter().rev())
                .map(|name| stream.frame(FrameKind::Vm, name))
                .collect();
            let start = stream.frame(FrameKind::Native, roots[0]);
            let frames = [frames, vec![start]].concat();
            let stack = stream.stack(&frames, "end_of_stack");
            stream.sample(id, stack, INTERVAL_NS);
        }
    }
    stream.send(Body::Statistics(statistics(&accounts, trouble)));
    if !trouble {
        stream.goodbye();
    }
    stream
}

fn request_stack(stream: &mut Stream, random: &mut Random, trouble: bool) -> u32 {
    let weight: usize = ENDPOINTS.iter().map(|(_, weight, _)| weight).sum();
    let mut pick = random.below(weight);
    let (endpoint, _, below) = ENDPOINTS
        .iter()
        .find(|(_, weight, _)| {
            let found = pick < *weight;
            pick = pick.saturating_sub(*weight);
            found
        })
        .expect("weights cover all picks");
    // Squaring favours the first alternatives, so that widths differ.
    let below = below[random.below(below.len()) * random.below(below.len() + 1) / below.len()];
    let below = &below[..below.len() - random.below(3).min(below.len() - 1)];
    let warm = random.below(100);
    let mut frames = Vec::new();
    for (depth, name) in SERVER.iter().chain([endpoint]).chain(below).enumerate() {
        let kind = match warm {
            0..4 => FrameKind::Interpreted,
            4..12 => FrameKind::C1,
            _ if depth % 5 == 3 || (depth > 24 && depth % 2 == 0) => FrameKind::Inlined,
            _ => FrameKind::C2,
        };
        frames.push(match name.split_at(1) {
            ("!", name) => stream.frame(FrameKind::NativeMethod, name),
            ("%", name) => stream.frame(FrameKind::Native, name),
            ("#", name) => stream.frame(FrameKind::Stub, name),
            _ => stream.frame(kind, name),
        });
    }
    frames.reverse();
    if trouble && random.below(20) == 0 {
        let reason = ["unreadable", "depth_limit", "no_frame_pointer"][random.below(3)];
        frames.truncate(6);
        return stream.stack(&frames, reason);
    }
    stream.stack(&frames, "end_of_stack")
}

fn statistics(accounts: &[(u32, u64)], trouble: bool) -> Statistics {
    let lost_ns = |samples: u64| if trouble { samples / 12 * INTERVAL_NS } else { 0 };
    let threads = accounts
        .iter()
        .map(|&(thread, samples)| ThreadAccount {
            thread,
            kernel_ns: samples * INTERVAL_NS + lost_ns(samples) + 4_321_000,
            sampled_ns: samples * INTERVAL_NS,
            lost: vec![Lost { cause: "queue_full".into(), count: 1, ns: lost_ns(samples) }],
            samples,
            ..Default::default()
        })
        .collect();
    let total: u64 = accounts.iter().map(|&(_, samples)| samples).sum();
    let lost = accounts.iter().map(|&(_, samples)| lost_ns(samples)).sum();
    let histogram = |low: u32| Histogram {
        count: total,
        max: 60_000,
        bucket: (low..low + 20).collect(),
        bucket_count: (0..20).map(|step| 4_000 / (step + 1)).collect(),
    };
    let walks = [("end_of_stack", total * 19 / 20), ("unreadable", total / 60), ("depth_limit", total / 30)];
    let clean = [("end_of_stack", total - 12), ("unreadable", 12), ("depth_limit", 0)];
    Statistics {
        threads,
        requests: total,
        samples: total,
        stops: (if trouble { walks } else { clean })
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(name, count)| Counter { name: name.into(), count })
            .collect(),
        handler_cycles: Some(histogram(74)),
        walk_ns: Some(histogram(84)),
        sampler_cpu_ns: 1_840_000_000,
        queue: Some(QueueStatistics {
            capacity_bytes: 38_400,
            grown: 3,
            pool_bytes: 2 << 20,
            ..Default::default()
        }),
        process_cpu_ns: total * INTERVAL_NS + 400_000_000,
        before_timer_ns: 310_000_000,
        lost: vec![Lost { cause: "queue_full".into(), count: lost / INTERVAL_NS, ns: lost }],
        ..Default::default()
    }
}

/// A session whose call tree has `nodes` nodes or a few more.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn large(nodes: usize) -> Stream {
    let mut stream = Stream::new();
    let mut random = Random(7);
    stream.thread(1, "main", ThreadKind::Java);
    let mut made = 0;
    while made < nodes {
        let depth = 20 + random.below(60);
        let fresh = 12 + random.below(30);
        let mut frames: Vec<u32> = (0..depth)
            .map(|level| {
                let choices = if level + fresh < depth { 2 } else { 40 };
                let name = format!("com/example/p{}/C{}.m{level}", level / 8, random.below(choices));
                stream.frame(FrameKind::C2, &name)
            })
            .collect();
        frames.reverse();
        made += fresh;
        let stack = stream.stack(&frames, "end_of_stack");
        stream.sample(1, stack, INTERVAL_NS);
    }
    stream.goodbye();
    stream
}
