import java.io.File;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Burns CPU time while native code does what profilers dislike.
 *
 * <p>Arguments: seconds of CPU time; the native library; the habit, after half of that time: {@code replace SIGNAL},
 * {@code block SIGNAL}, {@code block-for-a-while SIGNAL}, {@code timers COUNT}, {@code fork MILLISECONDS},
 * {@code detach THREADS}; for the last one the path of a file that must exist before the program ends.
 */
public final class NativeHabits {
    private static native void replaceHandler(int signal);

    private static native int foreignSignals();

    private static native void setBlocked(int signal, boolean blocked);

    private static native int createTimers(int count);

    private static native int createTimersInChild(int count);

    private static native int forkAndBurn(int milliseconds);

    private static native long beginDetaching(int threads);

    private static native void endDetaching(long threads);

    /** Starts threads that sleep, and returns when all run. */
    static void startThreads(int count) throws InterruptedException {
        CountDownLatch running = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(() -> {
                running.countDown();
                LockSupport.park();
            });
            thread.setDaemon(true);
            thread.start();
        }
        running.await();
    }

    public static void main(String[] arguments) throws InterruptedException {
        long half = ThreadCpu.budget(arguments, 2) / 2;
        System.load(arguments[1]);
        String habit = arguments[2];
        int number = Integer.parseInt(arguments[3]);
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        System.out.println("ready");
        System.out.flush();
        Burner.burn(half);
        switch (habit) {
            case "replace":
                replaceHandler(number);
                break;
            case "block":
                setBlocked(number, true);
                break;
            case "block-for-a-while":
                setBlocked(number, true);
                Burner.burn(half);
                setBlocked(number, false);
                break;
            case "timers":
                startThreads(300);
                System.out.println("in a child " + createTimersInChild(number));
                System.out.println("timers " + createTimers(number));
                break;
            case "fork":
                System.out.println("child " + forkAndBurn(number));
                break;
            case "detach":
                long threads = beginDetaching(number);
                File endFile = new File(arguments[4]);
                for (long burnt = 0; !endFile.exists(); burnt += 100_000_000) {
                    Burner.burn(100_000_000);
                    ThreadCpu.truthMethod("Burner.burn", burnt);
                }
                endDetaching(threads);
                break;
            default:
                throw new IllegalArgumentException(habit);
        }
        Burner.burn(half);
        System.out.println("foreign " + foreignSignals());
    }
}
