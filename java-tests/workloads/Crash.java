import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Dies, while another thread waits and a third one burns.
 *
 * <p>Arguments: unused; the native library; how: {@code null}, {@code abort} or {@code memory}.
 */
public final class Crash {
    private static native long dereferenceNull();

    private static native void abort();

    private static volatile long sink;

    static void waitForEver() {
        for (;;) {
            LockSupport.park();
        }
    }

    static void burnForEver() {
        for (;;) {
            sink += 1;
        }
    }

    static void fillMemory() {
        List<long[]> all = new ArrayList<>();
        for (;;) {
            all.add(new long[1 << 20]);
        }
    }

    static void die(String how) {
        switch (how) {
            case "null":
                dereferenceNull();
                break;
            case "abort":
                abort();
                break;
            case "memory":
                fillMemory();
                break;
            default:
                throw new IllegalArgumentException(how);
        }
    }

    private static void start(String name, CountDownLatch running, Runnable body) {
        Thread thread = new Thread(() -> {
            running.countDown();
            body.run();
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        System.load(arguments[1]);
        CountDownLatch running = new CountDownLatch(2);
        start("waiting for ever, with a long name", running, Crash::waitForEver);
        start("burning", running, Crash::burnForEver);
        running.await();
        die(arguments[2]);
    }
}
