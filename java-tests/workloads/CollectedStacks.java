import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.zip.Deflater;

/**
 * Many virtual threads (JDK 21 and newer) whose frames lie in the heap while it is collected all the time. Each thread
 * is of one of four kinds, with methods and a depth of its own, so that a stack with frames of another thread shows.
 * They burn in Java, in native code, by allocation, and in a Java method that the VM calls from native code; they yield
 * in between, and while they hold a monitor or are below native code, where they cannot unmount. Reflection keeps the
 * source at Java 11.
 *
 * <p>Arguments: seconds of wall time; number of threads; milliseconds between two collections by {@code System.gc()}, 0
 * for none; factor of the depths.
 *
 * <p>Needs {@code -Djdk.reflect.useNativeAccessorOnly=true}, with which {@code Method.invoke} is native.
 */
public final class CollectedStacks implements Runnable {
    private static final int[] DEPTHS = {20, 35, 50, 65};
    /** Elements that each thread keeps, so that collections have something to move. */
    private static final int KEPT = 16;

    private static final ConcurrentLinkedQueue<Deflater> DEFLATERS = new ConcurrentLinkedQueue<>();

    private static Method upcall;
    private static int factor = 1;
    static volatile boolean done;
    static volatile long sink;

    private final int kind;
    private final byte[] input = new byte[4096];
    private final Object[] kept = new Object[KEPT];

    private CollectedStacks(int kind) {
        this.kind = kind;
        for (int i = 0; i < input.length; i++) {
            input[i] = (byte) (i * 31 ^ i >>> 3);
        }
    }

    @Override
    public void run() {
        switch (kind) {
            case 0: first(factor * DEPTHS[0]); break;
            case 1: second(factor * DEPTHS[1]); break;
            case 2: third(factor * DEPTHS[2]); break;
            default: fourth(factor * DEPTHS[3]); break;
        }
    }

    private int first(int left) {
        return left == 1 ? work() : first(left - 1) + 1;
    }

    private int second(int left) {
        return left == 1 ? work() : second(left - 1) + 1;
    }

    private int third(int left) {
        return left == 1 ? work() : third(left - 1) + 1;
    }

    private int fourth(int left) {
        return left == 1 ? work() : fourth(left - 1) + 1;
    }

    private int work() {
        int rounds = 0;
        while (!done) {
            Thread.yield();
            burn(20_000);
            Thread.yield();
            pack();
            Thread.yield();
            allocate(rounds);
            pin();
            rounds++;
        }
        return rounds;
    }

    private static void burn(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        sink += x;
    }

    /** In native code. */
    private void pack() {
        Deflater deflater = DEFLATERS.poll();
        if (deflater == null) {
            deflater = new Deflater();
        }
        deflater.reset();
        deflater.setInput(input);
        deflater.finish();
        sink += deflater.deflate(new byte[8192]);
        DEFLATERS.offer(deflater);
    }

    private void pin() {
        synchronized (kept) {
            Thread.yield();
            burn(5_000);
        }
        try {
            upcall.invoke(null);
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }

    public static void called() {
        Thread.yield();
        burn(10_000);
    }

    private void allocate(int round) {
        for (int i = 0; i < 40; i++) {
            kept[(round + i) % KEPT] = new byte[200 + i];
        }
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 3);
        int count = ThreadCpu.argument(arguments, 1, 10_000);
        int pause = ThreadCpu.argument(arguments, 2, 0);
        upcall = CollectedStacks.class.getMethod("called");
        factor = ThreadCpu.argument(arguments, 3, 1);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Runnable task = new CollectedStacks(i % DEPTHS.length);
            threads.add((Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task));
        }
        long end = System.nanoTime() + budget;
        int collections = 0;
        while (System.nanoTime() < end) {
            if (pause > 0) {
                System.gc();
                collections++;
            }
            Thread.sleep(Math.max(pause, 1));
        }
        done = true;
        for (Thread thread : threads) {
            thread.join();
        }
        ThreadCpu.truth("method=CollectedStacks.work threads=" + count + " collections=" + collections + " factor=" + factor);
        ThreadCpu.truthThread();
    }
}
