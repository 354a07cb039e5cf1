import java.lang.reflect.Method;

/**
 * Walks of the stack-walk API in nested handlers, on alternate stacks, in virtual threads, and beside GetStackTrace;
 * prints each answer below a line with two equals signs.
 *
 * <p>Argument: path of libstacksignals.so.
 */
public final class StackSignals {
    /** Samples on an alternate stack to wait for: half a second with a kernel that ticks 250 times a second. */
    private static final int SAMPLES = 100;

    static native String nested(int options);

    static native String alternate(int options);

    static native String walk();

    static native void startTimer();

    static native long samples();

    static native String stopTimer();

    static native void compare();

    static native String compared();

    private static volatile long sink;
    private static volatile boolean compares;

    private static void show(String name, String text) {
        System.out.println("== " + name);
        System.out.println(text);
    }

    private static long fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    /** Small methods that compilers inline, recursion that they inline in part, and a virtual call. */
    private interface Step {
        void take(int depth);
    }

    private static final Step EVEN = depth -> odd(depth - 1);

    private static void descend(int depth) {
        if (depth <= 0) {
            if (compares) {
                compare();
            }
            return;
        }
        EVEN.take(depth);
    }

    private static void odd(int depth) {
        sink++;
        descend(depth - 1);
    }

    private static String deepVirtual(int depth) throws Exception {
        if (depth > 0) {
            return deepVirtual(depth - 1);
        }
        // Frames below are in the heap afterwards.
        Thread.sleep(1);
        return walk();
    }

    /** Runs in a virtual thread; returns false if this JDK has none. */
    private static boolean inVirtualThread(Runnable body) throws Exception {
        Method start;
        try {
            start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        } catch (NoSuchMethodException old) {
            return false;
        }
        ((Thread) start.invoke(null, body)).join();
        return true;
    }

    private static void virtualThreads() throws Exception {
        boolean has = inVirtualThread(() -> show("virtual", walk()));
        if (!has) {
            show("virtual", "none");
            return;
        }
        inVirtualThread(() -> {
            try {
                show("virtual deep", deepVirtual(50));
            } catch (Exception e) {
                show("virtual deep", e.toString());
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        for (int options = 0; options < 2; options++) {
            show("nested " + options, nested(options));
        }
        virtualThreads();
        // Interpreted frames first, then those of both compilers.
        for (int run = 0; run < 20_000; run++) {
            compares = run % 500 == 0;
            descend(run % 97);
        }
        show("compared", compared());
        for (int options = 0; options < 2; options++) {
            show("alternate " + options, alternate(options));
        }
        startTimer();
        while (samples() < SAMPLES) {
            sink += fib(22);
        }
        show("timer", stopTimer());
        System.out.println("== end");
    }
}
