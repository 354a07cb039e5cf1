import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;

/**
 * Virtual threads (JDK 21 and newer) descend 30 frames, yield there, and burn: after the yield most of their frames are
 * frozen in the heap. Reflection keeps the source at Java 11.
 *
 * <p>Arguments: nominal seconds of CPU time. The amount of work is fixed, because a virtual thread has no CPU clock.
 */
public final class VirtualThreads {
    private static final long ITERATIONS_PER_SECOND = 680_000_000L;
    private static final int TASKS = 1000;
    private static final int DEPTH = 30;

    static long descend(int depth, long iterations) {
        if (depth == 1) {
            return burn(iterations);
        }
        return descend(depth - 1, iterations) + 1;
    }

    static long burn(long iterations) {
        long x = iterations;
        for (int round = 0; round < 4; round++) {
            // Unmounts and mounts again; the callers are thawed when they are returned to.
            Thread.yield();
            for (long i = 0; i < iterations / 4; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        }
        return x;
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 3);
        long iterations = (long) (budget / 1e9 * ITERATIONS_PER_SECOND / TASKS);
        ExecutorService executor;
        try {
            executor = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (NoSuchMethodException exception) {
            System.err.println("VirtualThreads needs JDK 21 or newer");
            System.exit(3);
            return;
        }
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < TASKS; i++) {
            Callable<Long> task = () -> descend(DEPTH, iterations);
            results.add(executor.submit(task));
        }
        long sum = 0;
        for (Future<Long> result : results) {
            sum += result.get();
        }
        executor.shutdown();
        ThreadCpu.truth("method=VirtualThreads.burn depth=" + DEPTH + " tasks=" + TASKS + " iterations=" + iterations
                + " sum=" + sum);
        ThreadCpu.truthThread();
    }
}
