/**
 * Native threads that get other names while they run; each burns 2.8 s of CPU time.
 *
 * <p>Arguments: the native library.
 */
public final class RenamedNatives {
    private static native void run();

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        run();
    }
}
