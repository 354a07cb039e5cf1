/**
 * Small methods {@code a -> b -> c -> d}, which C2 inlines into {@code run}; the time is spent in {@code d}. A profile
 * must have a frame of each method, in this order.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class InlinedChain {
    private static volatile long sink;

    static long a(long x) {
        return b(x) + 1;
    }

    static long b(long x) {
        return c(x) + 2;
    }

    static long c(long x) {
        return d(x) + 3;
    }

    static long d(long x) {
        for (int i = 0; i < 500; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    static void run(int calls) {
        long x = sink;
        for (int i = 0; i < calls; i++) {
            x = a(x);
        }
        sink = x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        long burned = 0;
        while (now - start < budget) {
            run(1000);
            long after = ThreadCpu.nanos();
            burned += after - now;
            now = after;
        }
        ThreadCpu.truth("method=InlinedChain.run cpu_ns=" + burned + " chain=run;a;b;c;d");
        ThreadCpu.truthThread();
    }
}
