/**
 * Threads that get other names while they run.
 *
 * <p>Arguments: seconds of CPU time for each of two threads. One renames itself and ends; the other one is renamed by
 * main and runs when the program ends.
 */
public final class RenamedThreads {
    private static volatile boolean isRenamed;

    public static void main(String[] arguments) throws InterruptedException {
        long nanos = ThreadCpu.budget(arguments, 1);
        Thread itself = new Thread(() -> {
            Burner.burn(nanos / 2);
            Thread.currentThread().setName("renamed by itself");
            Burner.burn(nanos / 2);
        }, "first name");
        Thread other = new Thread(() -> {
            Burner.burn(nanos / 2);
            while (!isRenamed) {
                Thread.onSpinWait();
            }
            Burner.burn(nanos / 2);
            synchronized (RenamedThreads.class) {
                RenamedThreads.class.notifyAll();
            }
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }, "second name");
        other.setDaemon(true);
        itself.start();
        itself.join();
        synchronized (RenamedThreads.class) {
            other.start();
            other.setName("renamed by main");
            isRenamed = true;
            RenamedThreads.class.wait();
        }
    }
}
