/**
 * Burns CPU time in three threads and replaces the process by another program meanwhile.
 *
 * <p>Arguments: seconds of CPU time of the main thread before that; the native library.
 */
public final class ReplacesProcess {
    private static native void replace();

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 1);
        System.load(arguments[1]);
        for (int i = 0; i < 2; i++) {
            Thread thread = new Thread(() -> Burner.burn(Long.MAX_VALUE / 2));
            thread.setDaemon(true);
            thread.start();
        }
        Burner.burn(budget);
        replace();
    }
}
