import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Thousands of threads, one after the other, burn 42, 84, 168 or 336 us each and end, in random order; each length has
 * a method of its own.
 *
 * <p>Arguments: unused; threads of each length.
 */
public final class TinyThreads {
    private static final int[] MICROS = {42, 84, 168, 336};
    private static final AtomicLongArray BURNT = new AtomicLongArray(MICROS.length);
    private static volatile long sink;

    private TinyThreads() {}

    static void burn42() {
        burn(0);
    }

    static void burn84() {
        burn(1);
    }

    static void burn168() {
        burn(2);
    }

    static void burn336() {
        burn(3);
    }

    private static void burn(int length) {
        long start = ThreadCpu.nanos();
        long end = start + 1_000L * MICROS[length];
        long x = sink;
        long now;
        do {
            for (int i = 0; i < 1_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
            now = ThreadCpu.nanos();
        } while (now < end);
        sink = x;
        BURNT.addAndGet(length, now - start);
    }

    public static void main(String[] arguments) throws InterruptedException {
        int each = ThreadCpu.argument(arguments, 1, 20_000);
        Runnable[] bodies = {TinyThreads::burn42, TinyThreads::burn84, TinyThreads::burn168, TinyThreads::burn336};
        List<Integer> order = new ArrayList<>();
        for (int i = 0; i < each; i++) {
            for (int length = 0; length < MICROS.length; length++) {
                order.add(length);
            }
        }
        Collections.shuffle(order, new Random(1));
        // Compiled before the first thread that counts.
        for (int i = 0; i < 2_000; i++) {
            bodies[i % bodies.length].run();
        }
        for (int length = 0; length < MICROS.length; length++) {
            BURNT.set(length, 0);
        }
        for (int length : order) {
            Thread thread = new Thread(bodies[length], "tiny-" + MICROS[length]);
            thread.start();
            thread.join();
        }
        for (int length = 0; length < MICROS.length; length++) {
            ThreadCpu.truthMethod("TinyThreads.burn" + MICROS[length], BURNT.get(length));
        }
        ThreadCpu.truthThread();
    }
}
