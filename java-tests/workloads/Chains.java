import java.util.Random;

/**
 * Four methods burn CPU time in the ratio 1:2:4:8 in calls of 10 to 80 us, in random order.
 *
 * <p>Each is a chain of instructions that need one another's result, so its time is its length. Run it with and without
 * {@code -XX:CompileCommand=dontinline,Chains.*}.
 * Arguments: seconds of CPU time.
 */
public final class Chains {
    private static final int UNIT = 5_000;
    private static final String[] NAMES = {"one", "two", "four", "eight"};
    private static volatile long sink;

    private Chains() {}

    static long one(long x) {
        return chain(x, UNIT);
    }

    static long two(long x) {
        return chain(x, 2 * UNIT);
    }

    static long four(long x) {
        return chain(x, 4 * UNIT);
    }

    static long eight(long x) {
        return chain(x, 8 * UNIT);
    }

    private static long chain(long x, int length) {
        for (int i = 0; i < length; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    /** Calls each method once for each round, in random order. */
    private static long rounds(int count, Random random, long x) {
        for (int round = 0; round < count; round++) {
            int left = 0b1111;
            while (left != 0) {
                int bit = 1 << random.nextInt(NAMES.length);
                if ((left & bit) == 0) {
                    continue;
                }
                left ^= bit;
                if (bit == 1) {
                    x = one(x);
                } else if (bit == 2) {
                    x = two(x);
                } else if (bit == 4) {
                    x = four(x);
                } else {
                    x = eight(x);
                }
            }
        }
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 10);
        Random random = new Random(1);
        long start = ThreadCpu.nanos();
        long now = start;
        while (now - start < budget) {
            sink = rounds(50, random, sink);
            now = ThreadCpu.nanos();
        }
        for (int i = 0; i < NAMES.length; i++) {
            ThreadCpu.truthMethod("Chains." + NAMES[i], (now - start) * (1 << i) / 15);
        }
        ThreadCpu.truthThread();
    }
}
