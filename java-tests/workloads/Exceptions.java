/**
 * Throws exceptions with stack traces at a depth of 50 frames and catches them at the top. The time is spent in libjvm
 * and its stubs, which fill stack traces and unwind.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class Exceptions {
    private static long caught;

    static int descend(int depth) throws Exception {
        if (depth == 0) {
            throw new Exception("bottom");
        }
        return descend(depth - 1) + 1;
    }

    static void throwAndCatch() {
        try {
            descend(50);
        } catch (Exception exception) {
            caught += exception.getStackTrace().length;
        }
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        long burned = 0;
        while (now - start < budget) {
            for (int i = 0; i < 200; i++) {
                throwAndCatch();
            }
            long after = ThreadCpu.nanos();
            burned += after - now;
            now = after;
        }
        ThreadCpu.truthMethod("Exceptions.throwAndCatch", burned);
        ThreadCpu.truthThread();
        if (caught == 0) {
            throw new AssertionError("no exception was caught");
        }
    }
}
