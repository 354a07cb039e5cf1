import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongSupplier;
import java.util.zip.Deflater;

/**
 * Virtual threads (JDK 21 and newer) do known shares of work, each in a method of its own: two with names (3 : 1), one
 * without, one that burns in native code, and many short ones that follow each other on the same carriers. All unmount
 * after each span of work. The CPU time of a span is read from the carrier's clock, which no other thread uses during
 * the span. Reflection keeps the source at Java 11.
 *
 * <p>Arguments: seconds of CPU time of the smallest share.
 *
 * <p>Needs {@code --add-opens=java.management/sun.management=ALL-UNNAMED}, because virtual threads cannot read that
 * clock by the public interface.
 */
public final class VirtualIdentity {
    private static final int SPANS = 10;
    private static final int SHORT_THREADS = 40;
    /** Longer than a sampling interval and a tick, so that each thread has a sample. */
    private static final long SHORT_NANOS = 16_000_000L;

    private static final Method CLOCK = clock();

    static volatile long sink;

    private final long span;

    private VirtualIdentity(long nanos) {
        this.span = nanos / SPANS;
    }

    private long heavy() {
        long burnt = 0;
        for (int i = 0; i < 3 * SPANS; i++) {
            burnt += burn(span);
            Thread.yield();
        }
        return burnt;
    }

    private long light() {
        long burnt = 0;
        for (int i = 0; i < SPANS; i++) {
            burnt += burn(span);
            Thread.yield();
        }
        return burnt;
    }

    private long unnamed() {
        long burnt = 0;
        for (int i = 0; i < SPANS; i++) {
            burnt += burn(span);
            Thread.yield();
        }
        return burnt;
    }

    private long brief() {
        return burn(SHORT_NANOS);
    }

    /** Mostly in native code, where a collection may move the thread's objects at any time. */
    private long pack() {
        long burnt = burn(span);
        Thread.yield();
        byte[] input = new byte[1 << 18];
        byte[] output = new byte[input.length];
        long seed = 1;
        for (int i = 0; i < input.length; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            input[i] = (byte) (seed >>> 60);
        }
        Deflater deflater = new Deflater();
        for (int i = 1; i < SPANS; i++) {
            long start = nanos();
            do {
                deflater.reset();
                deflater.setInput(input);
                deflater.finish();
                sink += deflater.deflate(output);
            } while (nanos() - start < span);
            burnt += nanos() - start;
            Thread.yield();
        }
        deflater.end();
        return burnt;
    }

    /** Burns CPU time of the carrier and returns how much it used. */
    private static long burn(long nanos) {
        long start = nanos();
        long x = start;
        do {
            for (int i = 0; i < 100; i++) {
                x = step(x);
            }
        } while (nanos() - start < nanos);
        sink += x;
        return nanos() - start;
    }

    /** Takes about a microsecond. */
    private static long step(long x) {
        for (int i = 0; i < 600; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    private static Method clock() {
        try {
            Class<?> type = Class.forName("sun.management.ThreadImpl");
            Method method = type.getDeclaredMethod("getThreadTotalCpuTime0", long.class);
            method.setAccessible(true);
            return method;
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }

    /** Returns the CPU time of the calling thread or, for a virtual thread, of its carrier. */
    private static long nanos() {
        try {
            return (long) CLOCK.invoke(null, 0L);
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }

    private static Thread virtual(String name, Runnable task) throws ReflectiveOperationException {
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        if (name != null) {
            builder = type.getMethod("name", String.class).invoke(builder, name);
        }
        return (Thread) type.getMethod("unstarted", Runnable.class).invoke(builder, task);
    }

    /** Creates a thread that prints the CPU time it used. */
    private static Thread virtual(String name, String method, LongSupplier task) throws ReflectiveOperationException {
        return virtual(name, () -> {
            long burnt = task.getAsLong();
            Thread self = Thread.currentThread();
            ThreadCpu.truth("method=VirtualIdentity." + method + " java_id=" + self.getId() + " cpu_ns=" + burnt);
        });
    }

    public static void main(String[] arguments) throws Exception {
        VirtualIdentity work = new VirtualIdentity(ThreadCpu.budget(arguments, 1));
        // The first reflective calls load classes under locks. A virtual thread that waited for such a lock would
        // unmount, and the callers of its burn() would remain in the heap.
        burn(SHORT_NANOS);
        List<Thread> threads = new ArrayList<>();
        try {
            threads.add(virtual("heavy-\u65e5\u672c", "heavy", work::heavy));
            threads.add(virtual("light", "light", work::light));
            threads.add(virtual(null, "unnamed", work::unnamed));
            threads.add(virtual("pack", "pack", work::pack));
        } catch (NoSuchMethodException exception) {
            System.err.println("VirtualIdentity needs JDK 21 or newer");
            System.exit(3);
        }
        int first = threads.size();
        for (int i = 0; i < SHORT_THREADS; i++) {
            threads.add(virtual("brief-" + i, work::brief));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        ThreadCpu.truth("method=VirtualIdentity.brief java_id=" + threads.get(first).getId());
    }
}
