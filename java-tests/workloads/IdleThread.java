import java.util.concurrent.locks.LockSupport;

/**
 * The thread {@code idle} parks for the whole run while {@code main} burns. A CPU profile must have no sample of the
 * idle thread.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class IdleThread {
    private static volatile long sink;

    static void park() {
        while (true) {
            LockSupport.park();
        }
    }

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
        Thread idle = new Thread(IdleThread::park, "idle");
        idle.setDaemon(true);
        idle.start();
        long start = ThreadCpu.nanos();
        burn(ThreadCpu.budget(arguments, 3));
        ThreadCpu.truthMethod("IdleThread.burn", ThreadCpu.nanos() - start);
        ThreadCpu.truthThread(idle, ThreadCpu.nanosOf(idle));
        ThreadCpu.truthThread();
    }
}
