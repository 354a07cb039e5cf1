import java.io.File;

/**
 * Burns until the harness kills it with SIGKILL. Prints its process id, then {@code ready}, then how
 * much it has burned, so that the harness can kill it after a known amount of CPU time without waiting
 * by the clock.
 *
 * <p>Arguments: seconds of CPU time after which it ends by itself, should nobody kill it; path of a file that must be
 * there as well, which the harness makes once it has seen what it waits for.
 */
public final class Killed {
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
        long budget = ThreadCpu.budget(arguments, 60);
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        System.out.println("ready");
        System.out.flush();
        File enough = arguments.length > 1 ? new File(arguments[1]) : null;
        long burnt = 0;
        while (burnt < budget || (enough != null && !enough.exists())) {
            long start = ThreadCpu.nanos();
            burn(100_000_000);
            burnt += ThreadCpu.nanos() - start;
            ThreadCpu.truthMethod("Killed.burn", burnt);
        }
    }
}
