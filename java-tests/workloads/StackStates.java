/**
 * Walks in states of a thread in which it has few Java frames or none: libstackstates.so, the only argument, prints the
 * codes, the last ones while the process ends.
 */
public final class StackStates {
    /** Threads after which the wait for a signal in the last instructions of one is given up. */
    private static final int MAX_THREADS = 100_000;

    static native void nativeThread();

    static native void watchEnds();

    static native long ending();

    static native void printEnds();

    static native void stay();

    static native void awaitInside();

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        nativeThread();
        watchEnds();
        for (int threads = 0; threads < MAX_THREADS && ending() == 0; threads++) {
            Thread thread = new Thread(() -> {});
            thread.start();
            thread.join();
        }
        printEnds();
        Thread daemon = new Thread(StackStates::stay);
        daemon.setDaemon(true);
        daemon.start();
        awaitInside();
        System.exit(0);
    }
}
