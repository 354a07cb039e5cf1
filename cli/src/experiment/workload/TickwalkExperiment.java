import java.io.FileInputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.zip.Deflater;

/**
 * The program that `tickwalk experiment` profiles. The class file beside this source is committed, since users need not
 * have a compiler; java-tests/tests/experiments.rs checks that it is this source, and has the command that compiles it.
 *
 * "queue WORK THREADS DEPTH NATIVE_MS RUN_MS": threads descend DEPTH frames, work at the bottom, return, and descend
 * again, for RUN_MS. WORK is "native", one call of Deflater that burns about NATIVE_MS of CPU time without a
 * return to Java, or "java", a few milliseconds of sorting and allocation.
 *
 * "waste MS": burns MS of CPU time in each of several ways, and prints what each used by the thread's own
 * clock, as "truth WAY CPU_NS USER_NS". The CPU time of WAY lies below the method of that name.
 *
 * One class without lambdas, so that there is one class file.
 */
public final class TickwalkExperiment implements Runnable {
    private static final ThreadLocal<Deflater> DEFLATER = new ThreadLocal<>();
    private static ByteBuffer input;
    private static int nativeBytes;
    private static long deadline;
    /** Results go here, so that no work can be left out. */
    static volatile long sink;
    private static long guarded;

    private final String work;
    private final int depth;
    private final long target;
    private long cpu;
    private long user;
    private long calls;

    private TickwalkExperiment(String work, int depth, long target) {
        this.work = work;
        this.depth = depth;
        this.target = target;
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("queue")) {
            queue(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                Integer.parseInt(args[4]), Integer.parseInt(args[5]));
        } else {
            waste(Long.parseLong(args[1]) * 1_000_000);
        }
    }

    // ------------------------------------------------------------ queue

    private static void queue(String work, int threads, int depth, int nativeMs, int runMs) throws Exception {
        if (work.equals("native")) {
            prepareInput();
            calibrate(nativeMs);
        }
        deadline = System.nanoTime() + runMs * 1_000_000L;
        TickwalkExperiment[] runs = start(work, threads, depth, 0);
        long calls = 0;
        for (TickwalkExperiment run : runs) {
            calls += run.calls;
        }
        System.out.println("truth calls " + calls);
    }

    /** Letters in no order, of which there are few: level 9 searches long for repetitions that are never good. */
    private static void prepareInput() {
        input = ByteBuffer.allocateDirect(32 << 20);
        long state = 42;
        for (int i = 0; i < input.capacity(); i += 8) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            input.putLong(i, state & 0x0303030303030303L);
        }
    }

    /**
     * How many bytes take NATIVE_MS. Time does not grow evenly with them, so each attempt starts from the last one;
     * the faster of two counts, for a disturbed one says too few.
     */
    private static void calibrate(int nativeMs) {
        nativeBytes = 1 << 13;
        for (int i = 0; i < 4; i++) {
            long best = Long.MAX_VALUE;
            for (int attempt = 0; attempt < 2; attempt++) {
                long start = System.nanoTime();
                compress();
                best = Math.min(best, System.nanoTime() - start);
            }
            double factor = Math.min(nativeMs * 1e6 / best, 20);
            nativeBytes = (int) Math.max(1024, Math.min(factor * nativeBytes, input.capacity()));
        }
    }

    /** One JNI call; direct buffers, so that the collector is not kept from running meanwhile. */
    private static void compress() {
        Deflater deflater = DEFLATER.get();
        if (deflater == null) {
            deflater = new Deflater(9, true);
            DEFLATER.set(deflater);
        }
        ByteBuffer output = ByteBuffer.allocateDirect(nativeBytes / 2 + 1024);
        deflater.reset();
        ByteBuffer part = input.duplicate();
        part.limit(nativeBytes);
        deflater.setInput(part);
        deflater.finish();
        sink += deflater.deflate(output);
    }

    /** Four methods call each other, so that a deep stack is not one method over and over. */
    private void down0(int left) {
        if (left > 0) {
            down1(left - 1);
        } else {
            bottom();
        }
    }

    private void down1(int left) {
        if (left > 0) {
            down2(left - 1);
        } else {
            bottom();
        }
    }

    private void down2(int left) {
        if (left > 0) {
            down3(left - 1);
        } else {
            bottom();
        }
    }

    private void down3(int left) {
        if (left > 0) {
            down0(left - 1);
        } else {
            bottom();
        }
    }

    private void bottom() {
        calls++;
        if (work.equals("native")) {
            compress();
        } else {
            javaWork();
        }
    }

    private static void javaWork() {
        long[] numbers = new long[20_000];
        long state = System.nanoTime() | 1;
        for (int i = 0; i < numbers.length; i++) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            numbers[i] = state;
        }
        Arrays.sort(numbers);
        sink += numbers[numbers.length / 2];
    }

    // ------------------------------------------------------------ waste

    private static void waste(long target) throws Exception {
        String[] ways = {"spin", "allocate", "compress", "system", "lock", "naps", "throwing", "twoOne", "shortThreads"};
        prepareInput();
        for (String way : ways) {
            long cpu = 0;
            long user = 0;
            if (way.equals("twoOne")) {
                // Two methods share a thread, two milliseconds against one.
                TickwalkExperiment run = start("twoOne", 1, 0, target)[0];
                print("two", run.cpu, run.user);
                print("one", run.calls, -1);
                continue;
            }
            boolean threads = way.equals("shortThreads");
            int together = way.equals("lock") ? 2 : 1;
            long each = threads ? 3_000_000 : target / together;
            do {
                for (TickwalkExperiment run : start(way, together, 0, each)) {
                    cpu += run.cpu;
                    user += run.user;
                }
            } while (threads && cpu < target);
            print(way, cpu, threads ? -1 : user);
        }
    }

    /** A user time of -1 is not known: its clock ticks too slowly. */
    private static void print(String way, long cpu, long user) {
        System.out.println("truth " + way + " " + cpu + " " + user);
    }

    private static TickwalkExperiment[] start(String work, int count, int depth, long target) throws Exception {
        TickwalkExperiment[] runs = new TickwalkExperiment[count];
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++) {
            runs[i] = new TickwalkExperiment(work, depth, target);
            threads[i] = new Thread(runs[i], work + "-" + i);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return runs;
    }

    @Override
    public void run() {
        if (target == 0) {
            while (System.nanoTime() < deadline) {
                down0(depth - 2);
            }
            return;
        }
        try {
            if (work.equals("twoOne")) {
                twoOne();
            } else {
                ThreadMXBean clock = ManagementFactory.getThreadMXBean();
                long userBefore = clock.getCurrentThreadUserTime();
                long before = clock.getCurrentThreadCpuTime();
                burn(clock, before + target);
                cpu = clock.getCurrentThreadCpuTime() - before;
                user = clock.getCurrentThreadUserTime() - userBefore;
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private void burn(ThreadMXBean clock, long end) throws IOException, InterruptedException {
        switch (work) {
            case "allocate":
                allocate(clock, end);
                break;
            case "compress":
                nativeBytes = 1 << 16;
                compress(clock, end);
                break;
            case "system":
                system(clock, end);
                break;
            case "lock":
                lock(clock, end);
                break;
            case "naps":
                naps(clock, end);
                break;
            case "throwing":
                throwing(clock, end);
                break;
            case "shortThreads":
                shortThreads(clock, end);
                break;
            default:
                spin(clock, end);
        }
    }

    private static long mix(long state, int rounds) {
        for (int i = 0; i < rounds; i++) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
        }
        return state;
    }

    private static void spin(ThreadMXBean clock, long end) {
        work(clock, end);
    }

    private static void work(ThreadMXBean clock, long end) {
        while (clock.getCurrentThreadCpuTime() < end) {
            sink = mix(sink | 1, 20_000);
        }
    }

    private static void allocate(ThreadMXBean clock, long end) {
        while (clock.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 50; i++) {
                byte[] bytes = new byte[1000];
                bytes[i] = (byte) i;
                sink += bytes[i] + Arrays.hashCode(bytes);
            }
        }
    }

    private static void compress(ThreadMXBean clock, long end) {
        while (clock.getCurrentThreadCpuTime() < end) {
            compress();
        }
    }

    /** The kernel clears memory, the JVM copies it: half of this and more is system time. */
    private static void system(ThreadMXBean clock, long end) throws IOException {
        byte[] bytes = new byte[1 << 13];
        try (FileInputStream zero = new FileInputStream("/dev/zero")) {
            while (clock.getCurrentThreadCpuTime() < end) {
                for (int i = 0; i < 20; i++) {
                    sink += zero.read(bytes);
                }
            }
        }
    }

    private static void lock(ThreadMXBean clock, long end) {
        while (clock.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 200; i++) {
                synchronized (DEFLATER) {
                    guarded = mix(guarded | 1, 20);
                }
            }
        }
        sink += guarded;
    }

    /** Half a millisecond of work, then sleep, over and over: shorter than any tick. */
    private static void naps(ThreadMXBean clock, long end) throws InterruptedException {
        while (clock.getCurrentThreadCpuTime() < end) {
            work(clock, clock.getCurrentThreadCpuTime() + 500_000);
            Thread.sleep(0, 300_000);
        }
    }

    private static void throwing(ThreadMXBean clock, long end) {
        while (clock.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 10; i++) {
                try {
                    climb(30);
                } catch (IllegalStateException e) {
                    sink += e.getStackTrace().length;
                }
            }
        }
    }

    private static void climb(int left) {
        if (left == 0) {
            throw new IllegalStateException();
        }
        climb(left - 1);
        sink++;
    }

    private static void shortThreads(ThreadMXBean clock, long end) {
        work(clock, end);
    }

    private void twoOne() {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        while (cpu + calls < target) {
            long start = clock.getCurrentThreadCpuTime();
            two(clock, start + 2_000_000);
            long between = clock.getCurrentThreadCpuTime();
            one(clock, between + 1_000_000);
            cpu += between - start;
            calls += clock.getCurrentThreadCpuTime() - between;
        }
        // User time ticks too slowly to be told apart.
        user = -1;
    }

    private static void two(ThreadMXBean clock, long end) {
        work(clock, end);
    }

    private static void one(ThreadMXBean clock, long end) {
        work(clock, end);
    }
}
