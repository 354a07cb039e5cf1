import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/** The calling thread's own CPU clock, and the truth lines every workload prints for the harness. */
final class ThreadCpu {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private ThreadCpu() {}

    /** CPU time of the calling platform thread since it started, in nanoseconds. One call costs about 1 us. */
    static long nanos() {
        return THREADS.getCurrentThreadCpuTime();
    }

    /** CPU time of another platform thread that is alive. */
    static long nanosOf(Thread thread) {
        return THREADS.getThreadCpuTime(thread.getId());
    }

    /** The workload's first argument, seconds of CPU time, as nanoseconds. */
    static long budget(String[] arguments, double defaultSeconds) {
        double seconds = arguments.length > 0 ? Double.parseDouble(arguments[0]) : defaultSeconds;
        return (long) (seconds * 1e9);
    }

    static int argument(String[] arguments, int index, int defaultValue) {
        return arguments.length > index ? Integer.parseInt(arguments[index]) : defaultValue;
    }

    /** {@code truth method=NAME cpu_ns=N}: CPU time spent in NAME and what it called. */
    static void truthMethod(String name, long nanos) {
        truth("method=" + name + " cpu_ns=" + nanos);
    }

    /** {@code truth thread=NAME cpu_ns=N}: all CPU time of the calling thread so far. */
    static void truthThread() {
        truthThread(Thread.currentThread(), nanos());
    }

    /** The same of any thread, as it read its clock. */
    static void truthThread(Thread thread, long nanos) {
        truth("thread=" + thread.getName() + " cpu_ns=" + nanos);
    }

    /** One line, flushed, so that it is seen even if the process is killed right after. */
    static void truth(String fields) {
        synchronized (System.out) {
            System.out.println("truth " + fields);
            System.out.flush();
        }
    }
}
