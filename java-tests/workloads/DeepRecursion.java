/**
 * Recurses to a given depth and burns there, repeatedly, so that the frames are first interpreted and later compiled
 * and inlined into each other.
 *
 * <p>Arguments: seconds of CPU time; depth (1,000 by default).
 */
public final class DeepRecursion {
    private static volatile long sink;

    static long recurse(int depth, long nanos) {
        if (depth == 1) {
            return burn(nanos);
        }
        return recurse(depth - 1, nanos) + 1;
    }

    static long burn(long nanos) {
        long x = sink;
        long end = ThreadCpu.nanos() + nanos;
        do {
            for (int i = 0; i < 100_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() < end);
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        int depth = ThreadCpu.argument(arguments, 1, 1000);
        long start = ThreadCpu.nanos();
        long burned = 0;
        long now = start;
        while (now - start < budget) {
            sink = recurse(depth, 20_000_000);
            long after = ThreadCpu.nanos();
            burned += after - now;
            now = after;
        }
        ThreadCpu.truth("method=DeepRecursion.burn cpu_ns=" + burned + " depth=" + depth);
        ThreadCpu.truthThread();
    }
}
