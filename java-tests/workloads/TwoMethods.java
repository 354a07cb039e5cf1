/**
 * Two methods with the same code burn CPU time in the ratio 3:1.
 *
 * <p>Arguments: seconds of CPU time; mean span of a call of {@code light} in microseconds.
 * Spans vary at random between half and one and a half of the mean, so that they are not in phase with a sampler. With
 * spans longer than the sampling interval the expected error is small (each end is off by less than one interval); with
 * spans far below it every sample is an independent draw.
 */
public final class TwoMethods {
    private static volatile long sink;

    static long heavy(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    static long light(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 5);
        long spanNanos = 1000L * ThreadCpu.argument(arguments, 1, 50_000);
        java.util.Random random = new java.util.Random(1);
        long mainStart = ThreadCpu.nanos();
        long spans = 0;
        long heavyNanos = 0;
        long lightNanos = 0;
        // Iterations per nanosecond, measured again after every call because compilation changes them.
        double rate = 0.01;
        long start = ThreadCpu.nanos();
        long before = start;
        while (before - start < budget) {
            double length = spanNanos * (0.5 + random.nextDouble()) * rate;
            sink = heavy((long) (3 * length));
            long between = ThreadCpu.nanos();
            sink = light((long) length);
            long after = ThreadCpu.nanos();
            heavyNanos += between - before;
            lightNanos += after - between;
            rate = Math.min(2 * rate, 4 * length / Math.max(1, after - before));
            before = after;
            spans++;
        }
        ThreadCpu.truth("method=TwoMethods.heavy cpu_ns=" + heavyNanos + " spans=" + spans);
        ThreadCpu.truth("method=TwoMethods.light cpu_ns=" + lightNanos + " spans=" + spans);
        ThreadCpu.truth("thread=main cpu_ns=" + ThreadCpu.nanos() + " start_ns=" + mainStart);
    }
}
