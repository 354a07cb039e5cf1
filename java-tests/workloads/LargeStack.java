/**
 * Burns in a C function with 1.1 MB on the stack; the thread needs {@code -Xss4m}.
 *
 * <p>Arguments: seconds of CPU time; path of liblargestack.so.
 */
public final class LargeStack {
    private static volatile long sink;

    static native long spin(long rounds);

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 1);
        System.load(arguments[1]);
        long start = ThreadCpu.nanos();
        while (ThreadCpu.nanos() - start < budget) {
            sink += spin(20_000_000);
        }
        ThreadCpu.truthThread();
    }
}
