/**
 * One method with two loops on lines of their own, which burn CPU time in the ratio 1:3. Each loop takes tens of us, so
 * that samples are independent draws.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class TwoLines {
    private static final int UNIT = 5_000;
    private static volatile long sink;

    private TwoLines() {}

    static long loops(long x) {
        for (int i = 0; i < UNIT; i++) x = (x * 6364136223846793005L + 1442695040888963407L) ^ (x >>> 17);
        for (int i = 0; i < 3 * UNIT; i++) x = (x * 6364136223846793005L + 1442695040888963407L) ^ (x >>> 17);
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 10);
        long start = ThreadCpu.nanos();
        long now = start;
        while (now - start < budget) {
            for (int i = 0; i < 100; i++) {
                sink = loops(sink);
            }
            now = ThreadCpu.nanos();
        }
        // The lines of the two loops.
        ThreadCpu.truthMethod("TwoLines.loops:14", (now - start) / 4);
        ThreadCpu.truthMethod("TwoLines.loops:15", (now - start) * 3 / 4);
        ThreadCpu.truthThread();
    }
}
