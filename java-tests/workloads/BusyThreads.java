import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Many threads burn at the same time, each the same CPU time by its own clock.
 *
 * <p>Arguments: seconds of CPU time of all threads together; number of threads; number of additional threads that park.
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

    /** Reads the clock and parks, because printing or ending would burn CPU time after the reading. */
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
                // A rehearsal of the end, because code is slow when it runs for the first time.
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
