import java.util.concurrent.locks.LockSupport;

/**
 * The thread {@code idle} parks for the whole run while {@code main} burns. A CPU profile must have no sample of the
 * idle thread.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class IdleThread {
    static void park() {
        while (true) {
            LockSupport.park();
        }
    }

    public static void main(String[] arguments) {
        Thread idle = new Thread(IdleThread::park, "idle");
        idle.setDaemon(true);
        idle.start();
        long start = ThreadCpu.nanos();
        Burner.burn(ThreadCpu.budget(arguments, 3));
        ThreadCpu.truthMethod("Burner.burn", ThreadCpu.nanos() - start);
        ThreadCpu.truthThread(idle, ThreadCpu.nanosOf(idle));
        ThreadCpu.truthThread();
    }
}
