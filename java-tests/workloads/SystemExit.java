/**
 * Three threads burn. One of them, not main, then calls {@code System.exit(7)} while the other two burn and main waits.
 *
 * <p>Arguments: seconds of CPU time of the exiting thread.
 */
public final class SystemExit {
    public static void main(String[] arguments) throws InterruptedException {
        long budget = ThreadCpu.budget(arguments, 1);
        Thread exiting = new Thread(() -> {
            long start = ThreadCpu.nanos();
            Burner.burn(budget);
            ThreadCpu.truthMethod("Burner.burn", ThreadCpu.nanos() - start);
            ThreadCpu.truthThread();
            System.exit(7);
        }, "exiting");
        exiting.start();
        for (int i = 0; i < 2; i++) {
            // Bounded, so that the test fails instead of hanging if the exit call has no effect.
            new Thread(() -> Burner.burn(30 * budget), "burning-" + i).start();
        }
        exiting.join();
    }
}
