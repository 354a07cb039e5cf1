/**
 * Four methods with the same code take turns; each burns the same CPU time, and the turns lie on a fixed grid of the
 * thread's CPU clock.
 *
 * <p>Arguments: seconds of CPU time; length of a turn in nanoseconds.
 */
public final class FourPhases {
    private static volatile long sink;

    private FourPhases() {}

    static void first(long until) {
        spin(until);
    }

    static void second(long until) {
        spin(until);
    }

    static void third(long until) {
        spin(until);
    }

    static void fourth(long until) {
        spin(until);
    }

    private static void spin(long until) {
        long x = sink;
        do {
            for (int i = 0; i < 1_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() < until);
        sink = x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 5);
        long turn = ThreadCpu.argument(arguments, 1, 2_500_000);
        long[] burnt = new long[4];
        long before = ThreadCpu.nanos();
        long end = before + budget;
        for (long until = before + turn; before < end; ) {
            for (int phase = 0; phase < 4; phase++, until += turn) {
                if (phase == 0) {
                    first(until);
                } else if (phase == 1) {
                    second(until);
                } else if (phase == 2) {
                    third(until);
                } else {
                    fourth(until);
                }
                long after = ThreadCpu.nanos();
                burnt[phase] += after - before;
                before = after;
            }
        }
        String[] names = {"first", "second", "third", "fourth"};
        for (int phase = 0; phase < 4; phase++) {
            ThreadCpu.truthMethod("FourPhases." + names[phase], burnt[phase]);
        }
        ThreadCpu.truthThread();
    }
}
