/**
 * Four threads do equal, fixed work below 40 frames, to measure the cost of a profiler. The amount of work is a count
 * and does not depend on a clock.
 *
 * <p>Arguments: nominal seconds of CPU time of all threads together.
 */
public final class FourThreads {
    private static final int THREADS = 4;
    private static final int DEPTH = 40;
    /** Approximate rate of a 2.6 GHz core. */
    private static final long ITERATIONS_PER_SECOND = 680_000_000L;
    private static final int ITERATIONS_PER_CALL = 100_000;

    static long descend(int depth, long x) {
        if (depth == 0) {
            return work(x);
        }
        return descend(depth - 1, x) + 1;
    }

    static long work(long x) {
        for (int i = 0; i < ITERATIONS_PER_CALL; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    public static void main(String[] arguments) throws InterruptedException {
        double seconds = ThreadCpu.budget(arguments, 8) / 1e9;
        long calls = (long) (seconds * ITERATIONS_PER_SECOND / ITERATIONS_PER_CALL / THREADS);
        Thread[] threads = new Thread[THREADS];
        long[] results = new long[THREADS];
        long[] burnt = new long[THREADS];
        for (int i = 0; i < THREADS; i++) {
            int index = i;
            threads[i] = new Thread(() -> {
                long x = index;
                for (long call = 0; call < calls; call++) {
                    x = descend(DEPTH, x);
                }
                results[index] = x;
                burnt[index] = ThreadCpu.nanos();
            }, "worker-" + i);
            threads[i].start();
        }
        long sum = 0;
        for (int i = 0; i < THREADS; i++) {
            threads[i].join();
            sum += results[i];
            ThreadCpu.truthThread(threads[i], burnt[i]);
        }
        ThreadCpu.truth("method=FourThreads.work calls=" + calls * THREADS + " sum=" + sum);
        ThreadCpu.truthThread();
    }
}
