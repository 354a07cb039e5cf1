import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/** Reads CPU clocks of threads, and prints the truth lines that the test harness parses. */
final class ThreadCpu {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private ThreadCpu() {}

    /** Returns the CPU time of the calling platform thread since its start, in nanoseconds. A call takes about 1 us. */
    static long nanos() {
        return THREADS.getCurrentThreadCpuTime();
    }

    /** Returns the CPU time of another live platform thread, in nanoseconds. */
    static long nanosOf(Thread thread) {
        return THREADS.getThreadCpuTime(thread.getId());
    }

    /** Returns the workload's first argument, seconds of CPU time, in nanoseconds. */
    static long budget(String[] arguments, double defaultSeconds) {
        double seconds = arguments.length > 0 ? Double.parseDouble(arguments[0]) : defaultSeconds;
        return (long) (seconds * 1e9);
    }

    static int argument(String[] arguments, int index, int defaultValue) {
        return arguments.length > index ? Integer.parseInt(arguments[index]) : defaultValue;
    }

    /** Prints {@code truth method=NAME cpu_ns=N}: the CPU time of a method and its callees. */
    static void truthMethod(String name, long nanos) {
        truth("method=" + name + " cpu_ns=" + nanos);
    }

    /** Prints {@code truth thread=NAME cpu_ns=N}: the CPU time of the calling thread until now. */
    static void truthThread() {
        truthThread(Thread.currentThread(), nanos());
    }

    /** Prints the CPU time of any thread. */
    static void truthThread(Thread thread, long nanos) {
        truth("thread=" + thread.getName() + " cpu_ns=" + nanos);
    }

    /** Prints one line and flushes it, so that it is received even if the process is killed right after. */
    static void truth(String fields) {
        synchronized (System.out) {
            System.out.println("truth " + fields);
            System.out.flush();
        }
    }
}
