/**
 * Three threads burn. One of them, not main, then calls {@code System.exit(7)} while the other two burn and main waits.
 *
 * <p>Arguments: seconds of CPU time of the exiting thread.
 */
public final class SystemExit {
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

    public static void main(String[] arguments) throws InterruptedException {
        long budget = ThreadCpu.budget(arguments, 1);
        Thread exiting = new Thread(() -> {
            long start = ThreadCpu.nanos();
            burn(budget);
            ThreadCpu.truthMethod("SystemExit.burn", ThreadCpu.nanos() - start);
            ThreadCpu.truthThread();
            System.exit(7);
        }, "exiting");
        exiting.start();
        for (int i = 0; i < 2; i++) {
            // Bounded, so that the test fails instead of hanging if the exit call has no effect.
            new Thread(() -> burn(30 * budget), "burning-" + i).start();
        }
        exiting.join();
    }
}
