import java.lang.reflect.Method;
import java.util.concurrent.CountDownLatch;

/**
 * Virtual threads, one after the other, that yield at the bottom of a recursion and return: their frames are frozen
 * and thawed, all at once or some at a time. The properties mounted.depth and mounted.again must be even. Uses
 * reflection to compile for JDK 11.
 *
 * <p>Prints the field offsets of the classes that hold frozen frames, and the words of StackChunk's mirror, so that
 * another process can find the frames. Requires --add-opens of jdk.internal.misc and jdk.internal.vm.
 */
public class Mounted {
    static final int DEPTH = Integer.getInteger("mounted.depth");
    static final int AGAIN = Integer.getInteger("mounted.again");
    static final int WARM = 20_000;
    static final CountDownLatch ready = new CountDownLatch(1);
    static Method start;
    static volatile long sink;
    static int rounds;
    static boolean again;

    static long work(long seed) {
        long sum = seed;
        for (int i = 0; i < 20; i++) {
            sum = sum * 31 + i;
        }
        return sum;
    }

    /**
     * Yields twice: with all frames on the stack, then with so few that they fit into the existing chunk. Then
     * recurses so deep that the next freeze adds a chunk.
     */
    static long bottom(long seed) {
        Thread.yield();
        long worked = work(seed);
        if (again) {
            return worked;
        }
        Thread.yield();
        again = true;
        long below = even(AGAIN, 7, 6, 5, 4, 3, 2, 1, worked);
        again = false;
        return below;
    }

    /** Has large frames, because the VM thaws a chunk of less than 500 words at once. */
    static long even(int depth, long a, long b, long c, long d, long e, long f, long g, long h) {
        if (depth == 0) {
            return bottom(a);
        }
        long below = odd(depth - 1, b, c, d, e, f, g, h, a + 1);
        return below * a + b * c + d * e + f * g + h;
    }

    static long odd(int depth, long a, long b, long c, long d, long e, long f, long g, long h) {
        long below = even(depth - 1, b, c, d, e, f, g, h, a + 2);
        return below * a + b * c + d * e + f * g + h;
    }

    /** Runs one round and starts the next one on a new thread, which has no frozen frames. */
    static void round() {
        sink += even(DEPTH, 1, 2, 3, 4, 5, 6, 7, sink);
        if (++rounds == WARM + 1) {
            ready.countDown();
        }
        startRound();
    }

    static void startRound() {
        try {
            start.invoke(null, (Runnable) Mounted::round);
        } catch (ReflectiveOperationException exception) {
            throw new AssertionError(exception);
        }
    }

    static void describe() throws Exception {
        Class<?> type = Class.forName("jdk.internal.misc.Unsafe");
        Object unsafe = type.getMethod("getUnsafe").invoke(null);
        Method offset = type.getMethod("objectFieldOffset", Class.class, String.class);
        Class<?> chunk = Class.forName("jdk.internal.vm.StackChunk");
        for (String field : new String[] {"parent", "size", "sp", "bottom", "argsize"}) {
            print(offset, unsafe, chunk, field);
        }
        print(offset, unsafe, Class.forName("jdk.internal.vm.Continuation"), "tail");
        print(offset, unsafe, Thread.class, "tid");
        Method word = type.getMethod("getLong", Object.class, long.class);
        for (long at = 8; at < 128; at += 8) {
            System.out.println("mirror " + at + " " + word.invoke(unsafe, chunk, at));
        }
    }

    static void print(Method offset, Object unsafe, Class<?> type, String field) throws Exception {
        try {
            System.out.println("field " + field + " " + offset.invoke(unsafe, type, field));
        } catch (java.lang.reflect.InvocationTargetException absent) {
            System.out.println("no field " + field);
        }
    }

    public static void main(String[] arguments) throws Exception {
        describe();
        start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        startRound();
        ready.await();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ends when the test closes the pipe.
        }
    }
}
