import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Measures how long threads take to start while many others are parked: from {@code Thread.start} to the first line of
 * the new thread. Starts one thread a millisecond until a file exists, and prints the distribution, and begin and end
 * of each start that took long, by {@link System#nanoTime}.
 *
 * <p>Arguments: number of parked threads; path of the file.
 */
public final class ThreadStarts {
    private static final int MOST = 1_000_000;
    /** Starts that took so long are printed one by one. */
    private static final long LONG_MICROS = 1_000;

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

    public static void main(String[] arguments) throws InterruptedException, IOException {
        park(Integer.parseInt(arguments[0]));
        File end = new File(arguments[1]);
        // The kernel's id of the thread that starts the others.
        System.out.println("ready " + Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName());
        System.out.flush();
        long[] micros = new long[MOST];
        long[] begins = new long[MOST];
        int count = 0;
        while (count < MOST && !end.exists()) {
            long[] ran = new long[1];
            Thread thread = new Thread(() -> ran[0] = System.nanoTime());
            long begin = System.nanoTime();
            thread.start();
            thread.join();
            begins[count] = begin;
            micros[count++] = (ran[0] - begin) / 1000;
            LockSupport.parkNanos(1_000_000);
        }
        for (int i = 0; i < count; i++) {
            if (micros[i] >= LONG_MICROS) {
                System.out.println("long " + begins[i] + " " + (begins[i] + micros[i] * 1000));
            }
        }
        long[] sorted = Arrays.copyOf(micros, count);
        Arrays.sort(sorted);
        long late = Arrays.stream(sorted).filter(value -> value > 5_000).count();
        ThreadCpu.truth("starts=" + count + " p50_us=" + sorted[count / 2] + " p99_us=" + sorted[count * 99 / 100]
                + " max_us=" + sorted[count - 1] + " late=" + late);
    }
}
