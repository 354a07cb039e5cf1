import java.util.Random;

/**
 * Three methods share the CPU time; the second also calls {@code extra}, as much as the argument says.
 *
 * <p>The work is fixed, so that what a run with more of {@code extra} takes beyond one without is the cost of it.
 * Arguments: rounds; length of {@code extra} in percent of the three methods together.
 */
public final class Causality {
    private static final int UNIT = 4_000;
    private static volatile long sink;

    private Causality() {}

    static long first(long x) {
        return chain(x, 3 * UNIT);
    }

    static long second(long x, int extra) {
        x = chain(x, 4 * UNIT);
        return extra > 0 ? extra(x, extra) : x;
    }

    static long third(long x) {
        return chain(x, 3 * UNIT);
    }

    static long extra(long x, int length) {
        return chain(x, length);
    }

    private static long chain(long x, int length) {
        for (int i = 0; i < length; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    public static void main(String[] arguments) {
        int rounds = ThreadCpu.argument(arguments, 0, 30_000);
        int extra = ThreadCpu.argument(arguments, 1, 100) * 10 * UNIT / 100;
        Random random = new Random(1);
        long x = sink;
        for (int round = 0; round < rounds; round++) {
            // The order is random, so that nothing has the rhythm of a sampler.
            switch (random.nextInt(3)) {
                case 0: x = third(second(first(x), extra)); break;
                case 1: x = first(third(second(x, extra))); break;
                default: x = second(first(third(x)), extra);
            }
        }
        sink = x;
        ThreadCpu.truthThread();
    }
}
