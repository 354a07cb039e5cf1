import java.util.ArrayList;
import java.util.List;
import java.util.zip.Deflater;

/**
 * Virtual threads (JDK 21 and newer) with known shares of work, each in a method of its own: two with names (3 : 1),
 * one without, one that burns in native code, and many short ones that follow each other on the same carriers. All
 * let go of their carrier again and again. Reflection keeps the source at Java 11.
 *
 * <p>Arguments: seconds of CPU time of the smallest share.
 */
public final class VirtualIdentity {
    private static final int ROUNDS = 40;
    private static final int SHORT_THREADS = 40;

    static volatile long sink;

    private final long microseconds;

    private VirtualIdentity(long microseconds) {
        this.microseconds = microseconds;
    }

    private void heavy() {
        for (int round = 0; round < 3 * ROUNDS; round++) {
            burn(microseconds / ROUNDS);
            Thread.yield();
        }
    }

    private void light() {
        for (int round = 0; round < ROUNDS; round++) {
            burn(microseconds / ROUNDS);
            Thread.yield();
        }
    }

    private void unnamed() {
        for (int round = 0; round < ROUNDS; round++) {
            burn(microseconds / ROUNDS);
            Thread.yield();
        }
    }

    private void brief() {
        burn(microseconds / SHORT_THREADS);
    }

    /** Native code for most of the time: the heap must not be looked at, which is where the name is. */
    private void pack() {
        burn(microseconds / 5);
        byte[] input = new byte[1 << 20];
        byte[] output = new byte[input.length];
        long seed = 1;
        for (int i = 0; i < input.length; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            input[i] = (byte) (seed >>> 60);
        }
        Deflater deflater = new Deflater();
        for (int round = 0; round < Math.max(1, microseconds / 50_000); round++) {
            deflater.reset();
            deflater.setInput(input);
            deflater.finish();
            sink += deflater.deflate(output);
            Thread.yield();
        }
        deflater.end();
    }

    private static void burn(long rounds) {
        long x = rounds;
        for (long round = 0; round < rounds; round++) {
            x = step(x);
        }
        sink += x;
    }

    /** About a microsecond. */
    private static long step(long x) {
        for (int i = 0; i < 600; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    private static Thread virtual(String name, Runnable task) throws ReflectiveOperationException {
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        if (name != null) {
            builder = type.getMethod("name", String.class).invoke(builder, name);
        }
        return (Thread) type.getMethod("unstarted", Runnable.class).invoke(builder, task);
    }

    public static void main(String[] arguments) throws Exception {
        VirtualIdentity work = new VirtualIdentity(ThreadCpu.budget(arguments, 1) / 1000);
        // Compiled before it counts, so that equal work takes equal time.
        burn(20_000);
        List<Thread> threads = new ArrayList<>();
        try {
            threads.add(virtual("heavy-\u65e5\u672c", work::heavy));
            threads.add(virtual("light", work::light));
            threads.add(virtual(null, work::unnamed));
            threads.add(virtual("pack", work::pack));
        } catch (NoSuchMethodException exception) {
            System.err.println("VirtualIdentity needs JDK 21 or newer");
            System.exit(3);
        }
        for (int i = 0; i < SHORT_THREADS; i++) {
            threads.add(virtual("brief-" + i, work::brief));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        String[] methods = {"heavy", "light", "unnamed", "pack"};
        for (int i = 0; i < methods.length; i++) {
            ThreadCpu.truth("method=VirtualIdentity." + methods[i] + " java_id=" + threads.get(i).getId());
        }
        ThreadCpu.truth("method=VirtualIdentity.brief java_id=" + threads.get(methods.length).getId());
    }
}
