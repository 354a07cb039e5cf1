import java.util.concurrent.TimeUnit;

/**
 * A virtual thread (JDK 21 and newer) descends deep, sleeps there and burns: after the sleep all but its newest frames
 * remain in the heap. Reflection keeps the source at Java 11.
 *
 * <p>Arguments: seconds of the carrier's CPU time; depth; number of sleeps.
 */
public final class FrozenStack implements Runnable {
    static volatile long sink;

    private final long budget;
    private final int depth;
    private final int sleeps;

    private FrozenStack(long budget, int depth, int sleeps) {
        this.budget = budget;
        this.depth = depth;
        this.sleeps = sleeps;
    }

    @Override
    public void run() {
        sink += descend(depth);
    }

    private long descend(int left) {
        if (left == 1) {
            long sum = 0;
            for (int i = 0; i < sleeps; i++) {
                pause();
                sum += burn(budget / sleeps);
            }
            return sum;
        }
        return descend(left - 1) + 1;
    }

    private static void pause() {
        try {
            TimeUnit.MILLISECONDS.sleep(5);
        } catch (InterruptedException exception) {
            throw new IllegalStateException(exception);
        }
    }

    private static long burn(long nanos) {
        long x = nanos;
        long rounds = nanos / 1000;
        for (long round = 0; round < rounds; round++) {
            x = step(x);
        }
        return x;
    }

    /** Takes about a microsecond. */
    private static long step(long x) {
        for (int i = 0; i < 600; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 3);
        int depth = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 150;
        int sleeps = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 10;
        Runnable task = new FrozenStack(budget, depth, sleeps);
        Thread thread;
        try {
            thread = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
        } catch (NoSuchMethodException exception) {
            System.err.println("FrozenStack needs JDK 21 or newer");
            System.exit(3);
            return;
        }
        thread.join();
        ThreadCpu.truth("method=FrozenStack.burn depth=" + depth + " java_id=" + thread.getId());
        ThreadCpu.truthThread();
    }
}
