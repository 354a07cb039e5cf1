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
        // The first line links string concatenation, which must not burn CPU time of a thread after its last reading.
        ThreadCpu.truthThread();
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++) {
            threads[i] = new Thread(() -> {
                burn(each);
                ThreadCpu.truthThread();
            }, "busy-" + i);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        ThreadCpu.truthThread();
    }
}
