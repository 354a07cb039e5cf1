import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Thousands of threads, two at a time, burn 1 to 5 ms each and end. Most of them end before the first sampling
 * interval, so the account closes only if unfinished periods are counted.
 *
 * <p>Arguments: seconds of CPU time of all threads together.
 */
public final class ManyShortThreads {
    private static final AtomicLong TOTAL = new AtomicLong();
    private static volatile long sink;

    static void burn(long nanos) {
        long start = ThreadCpu.nanos();
        long x = sink;
        do {
            for (int i = 0; i < 20_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() - start < nanos);
        sink = x;
        TOTAL.addAndGet(ThreadCpu.nanos() - start);
    }

    public static void main(String[] arguments) throws InterruptedException {
        TOTAL.set(0);
        long budget = ThreadCpu.budget(arguments, 6);
        Random random = new Random(1);
        int started = 0;
        while (TOTAL.get() < budget) {
            Thread[] pair = new Thread[2];
            for (int i = 0; i < pair.length; i++) {
                long nanos = 1_000_000 + random.nextInt(4_000_000);
                pair[i] = new Thread(() -> burn(nanos), "short-" + started++);
                pair[i].start();
            }
            for (Thread thread : pair) {
                thread.join();
            }
        }
        ThreadCpu.truth("method=ManyShortThreads.burn cpu_ns=" + TOTAL.get() + " threads=" + started);
        ThreadCpu.truthThread();
    }
}
