import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.file.Path;
import java.util.Random;

/**
 * Calls C through the foreign function API (JDK 21 and later), which calls back: Java, C, Java, C and Java are on one
 * stack. A thread that C has started calls back as well.
 *
 * <p>Arguments: seconds of CPU time; path of libpanama.so.
 */
public final class Panama {
    private static final int LEVELS = 3;
    private static String library;
    private static long rounds;
    private static volatile long sink;

    /** Constants, so that the compiler sees through them. */
    private static final class Functions {
        static final MethodHandle CALL;
        static final MethodHandle SPIN;
        static final MethodHandle ON_THREAD;
        static final long CALLBACK;

        static {
            try {
                ForeignApi api = new ForeignApi(Path.of(library));
                MethodType type = MethodType.methodType(long.class, long.class);
                CALL = api.downcall("panama_call", 2);
                SPIN = api.downcall("panama_spin", 1);
                ON_THREAD = api.downcall("panama_on_thread", 2);
                CALLBACK = api.upcall(MethodHandles.lookup().findStatic(Panama.class, "callback", type), 1, api.global);
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        }
    }

    /** Called by C; calls C again until the level is 0. */
    static long callback(long level) {
        try {
            if (level > 0) {
                return call(level - 1);
            }
            return work(rounds) + spin(rounds);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    private static long call(long level) throws Throwable {
        return (long) Functions.CALL.invokeExact(Functions.CALLBACK, level);
    }

    private static long spin(long rounds) throws Throwable {
        return (long) Functions.SPIN.invokeExact(rounds);
    }

    private static long work(long rounds) {
        long x = rounds;
        for (long i = 0; i < rounds; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    private static void nested() throws Throwable {
        sink += call(LEVELS - 1);
    }

    private static void started() throws Throwable {
        sink += (long) Functions.ON_THREAD.invokeExact(Functions.CALLBACK, 0L);
    }

    public static void main(String[] arguments) throws Throwable {
        long budget = ThreadCpu.budget(arguments, 3);
        library = arguments[1];
        Random random = new Random(1);
        long start = ThreadCpu.nanos();
        for (long call = 0; ThreadCpu.nanos() - start < budget; call++) {
            if (call % 500 == 499) {
                rounds = 1_000_000;
                started();
                continue;
            }
            // Mostly short, so that many samples are between the languages.
            rounds = random.nextInt(50) == 0 ? random.nextInt(100_000) : 0;
            for (int i = 0; i < 20; i++) {
                nested();
            }
        }
        ThreadCpu.truthThread();
    }
}
