import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Starts many threads that park for the whole run and prints the resident memory of the process, to measure what a
 * profiler adds per idle thread.
 *
 * <p>Arguments: number of threads.
 */
public final class ManyIdleThreads {
    static long residentBytes() throws Exception {
        for (String line : Files.readAllLines(Paths.get("/proc/self/status"), StandardCharsets.US_ASCII)) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        throw new IllegalStateException("no VmRSS");
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        CountDownLatch started = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            Thread idle = new Thread(null, () -> {
                started.countDown();
                while (true) {
                    LockSupport.park();
                }
            }, "idle-" + i, 64 << 10);
            idle.setDaemon(true);
            idle.start();
        }
        started.await();
        // A profiler that scans all threads has found them after this time.
        Thread.sleep(3_000);
        ThreadCpu.truth("resident_bytes=" + residentBytes() + " threads=" + count);
    }
}
