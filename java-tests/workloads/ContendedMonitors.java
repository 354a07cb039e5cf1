import java.util.ArrayList;
import java.util.List;

/**
 * Virtual threads (JDK 21 and newer) descend to a known depth and contend for one monitor there, in compiled and in
 * interpreted code. From JDK 24 on, a thread that waits for a monitor unmounts inside the VM, and its frames are on the
 * stack and in the heap for a while. Reflection keeps the source at Java 11.
 *
 * <p>Arguments: rounds of each thread; number of threads.
 */
public final class ContendedMonitors {
    private static final int DEPTH = 30;
    private static final Object LOCK = new Object();

    private static long sum;

    static void descend(int depth, int rounds) {
        if (depth == 1) {
            fight(rounds);
            return;
        }
        descend(depth - 1, rounds);
    }

    static void fight(int rounds) {
        for (int i = 0; i < rounds; i++) {
            add(i);
            if (i % 8 == 0) {
                Thread.yield();
            }
        }
    }

    private static void add(int i) {
        synchronized (LOCK) {
            long x = i;
            for (int k = 0; k < 2_000; k++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
            }
            sum += x;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = ThreadCpu.argument(arguments, 0, 2_000);
        int count = ThreadCpu.argument(arguments, 1, 40);
        Runnable task = () -> descend(DEPTH, rounds);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add((Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        ThreadCpu.truth("method=ContendedMonitors.descend depth=" + DEPTH + " sum=" + sum);
    }
}
