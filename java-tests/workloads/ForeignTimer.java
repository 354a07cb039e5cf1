/**
 * Runs {@code RegexStrings} with a CPU timer that sends SIGPROF, as a second profiler does.
 *
 * <p>Arguments: seconds of CPU time; path of libforeigntimer.so; {@code thread} or {@code process}, whose CPU clock the
 * timer uses; its period in microseconds.
 */
public final class ForeignTimer {
    static native long start(long ofProcess, long nanos);

    static native long ticks();

    public static void main(String[] arguments) {
        System.load(arguments[1]);
        long ofProcess = arguments[2].equals("process") ? 1 : 0;
        if (start(ofProcess, 1000 * Long.parseLong(arguments[3])) != 0) {
            throw new IllegalStateException("the timer cannot be started");
        }
        RegexStrings.main(arguments);
        ThreadCpu.truth("timer=" + arguments[2] + " ticks=" + ticks());
    }
}
