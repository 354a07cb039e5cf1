import java.util.concurrent.ThreadLocalRandom;

/**
 * Burns nearly all CPU time in a method without a safepoint poll, which a caller with polls calls in a loop.
 *
 * <p>Argument: seconds of CPU time. Copies of arrays are leaf routines of the VM, and the method has no loop of its
 * own, so a thread whose stack is requested is seen in the caller.
 */
public final class SafepointBias {
    private static final int LENGTH = 1 << 18;

    static void withoutPoll(long[] from, long[] to) {
        System.arraycopy(from, 0, to, 0, LENGTH);
    }

    static void caller(long[] from, long[] to, long rounds) {
        for (long round = 0; round < rounds; round++) {
            withoutPoll(from, to);
        }
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 5);
        long[] from = new long[LENGTH];
        long[] to = new long[LENGTH];
        from[0] = ThreadLocalRandom.current().nextLong();
        // Compiled by the time that the budget begins; a copy takes some 100 us.
        caller(from, to, 5_000);
        long start = ThreadCpu.nanos();
        while (ThreadCpu.nanos() - start < budget) {
            caller(from, to, 20);
        }
        ThreadCpu.truth("method=SafepointBias.withoutPoll cpu_ns=" + (ThreadCpu.nanos() - start) + " result=" + to[0]);
    }
}
