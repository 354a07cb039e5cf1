import java.io.File;

/**
 * Burns CPU time until the harness kills it or lets it end. Prints its process id, {@code ready}, and its CPU time
 * every 100 ms, so that the harness can act after a known amount of CPU time.
 *
 * <p>Arguments: seconds of CPU time after which it ends, 2 by default; path of a file that must exist before it ends.
 */
public final class Burner {
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
        long budget = ThreadCpu.budget(arguments, 2);
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        System.out.println("ready");
        System.out.flush();
        File endFile = arguments.length > 1 ? new File(arguments[1]) : null;
        long burnt = 0;
        while (burnt < budget || (endFile != null && !endFile.exists())) {
            long start = ThreadCpu.nanos();
            burn(100_000_000);
            burnt += ThreadCpu.nanos() - start;
            ThreadCpu.truthMethod("Burner.burn", burnt);
        }
    }
}
