import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Many threads that burn at once, each the same CPU time by its own clock.
 *
 * <p>Arguments: seconds of CPU time of all threads together, number of threads; number of threads that park beside them.
 */
public final class BusyThreads {
    private static volatile long sink;

    static void burn(long nanos) {
        long x = sink;
        long end = ThreadCpu.nanos() + nanos;
        do {
            for (int i = 0; i < 20_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() < end);
        sink = x;
    }

    /** Reads the clock and parks; to print the reading, or to end, would burn CPU time after it. */
    private static void finish(long[] burnt, int number, CountDownLatch latch, long nanos) {
        burnt[number] = ThreadCpu.nanos();
        latch.countDown();
        long end = nanos == Long.MAX_VALUE ? nanos : System.nanoTime() + nanos;
        do {
            LockSupport.parkNanos(nanos);
        } while (System.nanoTime() < end);
    }

    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[1]);
        long each = ThreadCpu.budget(arguments, 4) / count;
        CountDownLatch parked = new CountDownLatch(ThreadCpu.argument(arguments, 2, 0));
        for (long i = parked.getCount(); i > 0; i--) {
            Thread idle = new Thread(null, () -> {
                parked.countDown();
                while (true) {
                    LockSupport.park();
                }
            }, "idle-" + i, 64 << 10);
            idle.setDaemon(true);
            idle.start();
        }
        parked.await();
        Thread[] threads = new Thread[count];
        long[] burnt = new long[count];
        CountDownLatch warm = new CountDownLatch(count);
        CountDownLatch running = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int number = i;
            threads[i] = new Thread(() -> {
                // What it does after its last reading, done before: code that runs for the first time is dear.
                finish(burnt, number, warm, 1);
                burn(each);
                finish(burnt, number, running, Long.MAX_VALUE);
            }, "busy-" + i);
            threads[i].setDaemon(true);
            threads[i].start();
        }
        running.await();
        for (int i = 0; i < count; i++) {
            ThreadCpu.truthThread(threads[i], burnt[i]);
        }
        ThreadCpu.truthThread();
    }
}
