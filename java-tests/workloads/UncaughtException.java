/**
 * Burns, then main ends by an uncaught exception: exit code 1, and a stack trace on standard error.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class UncaughtException {
    public static void main(String[] arguments) {
        long start = ThreadCpu.nanos();
        Burner.burn(ThreadCpu.budget(arguments, 1));
        ThreadCpu.truthMethod("Burner.burn", ThreadCpu.nanos() - start);
        ThreadCpu.truthThread();
        throw new IllegalStateException("on purpose");
    }
}
