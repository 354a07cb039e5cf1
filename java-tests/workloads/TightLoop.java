/**
 * Runs one counted loop without calls or safepoint polls, which a sampler that waits for safepoints does not see. The
 * interpreter, C1 and C2 run it one after the other (by OSR).
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class TightLoop {
    private static volatile long sink;

    static long spin(int iterations) {
        long x = sink;
        for (int i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        long burned = 0;
        while (now - start < budget) {
            sink = spin(50_000_000);
            long after = ThreadCpu.nanos();
            burned += after - now;
            now = after;
        }
        ThreadCpu.truthMethod("TightLoop.spin", burned);
        ThreadCpu.truthThread();
    }
}
