/**
 * Burns, then main ends by an uncaught exception: exit code 1, and a stack trace on standard error.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class UncaughtException {
    private static volatile long sink;

    static void burn(long nanos) {
        long x = sink;
        long end = ThreadCpu.nanos() + nanos;
        do {
            for (int i = 0; i < 100_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() < end);
        sink = x;
    }

    public static void main(String[] arguments) {
        long start = ThreadCpu.nanos();
        burn(ThreadCpu.budget(arguments, 1));
        ThreadCpu.truthMethod("UncaughtException.burn", ThreadCpu.nanos() - start);
        ThreadCpu.truthThread();
        throw new IllegalStateException("on purpose");
    }
}
