import java.io.File;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Measures how long threads take to start while many others are parked: from {@code Thread.start} to the first line of the
 * new thread. Starts one thread a millisecond until a file exists, and prints the distribution.
 *
 * <p>Arguments: number of parked threads; path of the file.
 */
public final class ThreadStarts {
    private static final int MOST = 1_000_000;

    private static void park(int count) throws InterruptedException {
        CountDownLatch parked = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(null, () -> {
                parked.countDown();
                while (true) {
                    LockSupport.park();
                }
            }, "parked-" + i, 64 << 10);
            thread.setDaemon(true);
            thread.start();
        }
        parked.await();
    }

    public static void main(String[] arguments) throws InterruptedException {
        park(Integer.parseInt(arguments[0]));
        File end = new File(arguments[1]);
        System.out.println("ready");
        System.out.flush();
        long[] micros = new long[MOST];
        int count = 0;
        while (count < MOST && !end.exists()) {
            long[] ran = new long[1];
            Thread thread = new Thread(() -> ran[0] = System.nanoTime());
            long begin = System.nanoTime();
            thread.start();
            thread.join();
            micros[count++] = (ran[0] - begin) / 1000;
            LockSupport.parkNanos(1_000_000);
        }
        long[] sorted = Arrays.copyOf(micros, count);
        Arrays.sort(sorted);
        long late = Arrays.stream(sorted).filter(value -> value > 5_000).count();
        ThreadCpu.truth("starts=" + count + " p50_us=" + sorted[count / 2] + " p99_us=" + sorted[count * 99 / 100]
                + " max_us=" + sorted[count - 1] + " late=" + late);
    }
}
