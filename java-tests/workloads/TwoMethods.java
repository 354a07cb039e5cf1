/**
 * Two methods of the same code burn CPU time 3:1.
 *
 * <p>Arguments: seconds of CPU time; mean length of a slice of {@code light} in microseconds.
 * Slices vary at random between half and one and a half of the mean, so that they cannot run in step
 * with a sampler. Slices longer than the sampling interval make the expected error small (each
 * boundary is off by less than one interval); slices far below it make every sample an independent draw.
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
        long sliceNanos = 1000L * ThreadCpu.argument(arguments, 1, 50_000);
        java.util.Random random = new java.util.Random(1);
        long begun = ThreadCpu.nanos();
        long turns = 0;
        long heavyNanos = 0;
        long lightNanos = 0;
        // Iterations per nanosecond, corrected after every slice because compilation changes it.
        double rate = 0.01;
        long start = ThreadCpu.nanos();
        long before = start;
        while (before - start < budget) {
            double length = sliceNanos * (0.5 + random.nextDouble()) * rate;
            sink = heavy((long) (3 * length));
            long between = ThreadCpu.nanos();
            sink = light((long) length);
            long after = ThreadCpu.nanos();
            heavyNanos += between - before;
            lightNanos += after - between;
            rate = Math.min(2 * rate, 4 * length / Math.max(1, after - before));
            before = after;
            turns++;
        }
        ThreadCpu.truth("method=TwoMethods.heavy cpu_ns=" + heavyNanos + " turns=" + turns);
        ThreadCpu.truth("method=TwoMethods.light cpu_ns=" + lightNanos + " turns=" + turns);
        ThreadCpu.truth("thread=main cpu_ns=" + ThreadCpu.nanos() + " begun_ns=" + begun);
    }
}
