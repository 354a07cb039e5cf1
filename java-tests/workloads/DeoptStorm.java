import java.io.InputStream;

/**
 * Deoptimises compiled code all the time. Each round defines new classes, runs them until they are compiled, and then
 * breaks the assumptions of the compiler: a second receiver class and a null (uncommon traps of the newest frame), and
 * a subclass that is loaded at the bottom of a recursion (its compiled callers are replaced by interpreter frames one
 * by one when they are returned to).
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class DeoptStorm {
    /** Public, because a class of another loader is in another runtime package. */
    public static volatile long sink;

    /** A call that the compiler binds statically while no subclass is loaded. */
    public static class Step {
        public long apply(long x) {
            return x * 6364136223846793005L + 1442695040888963407L;
        }
    }

    /** Loaded during a recursion. */
    public static final class OtherStep extends Step {
        @Override
        public long apply(long x) {
            return x ^ x >>> 17;
        }
    }

    /** One round; a new class each time, so that it has neither a profile nor compiled code. */
    public static final class Round implements Runnable {
        @Override
        public void run() {
            Step step = new Step();
            long x = sink;
            for (int i = 0; i < 3_000; i++) {
                x = descend(12, x, step, false) + typed("text", i) + typed(i % 3 == 0 ? "other" : "text", i);
            }
            x += descend(40, x, step, true);
            for (int i = 0; i < 200; i++) {
                x += typed(Integer.valueOf(i), i) + typed(null, i) + caught(i);
            }
            sink = x;
        }

        static long descend(int depth, long x, Step step, boolean load) {
            if (depth == 0) {
                Step last = load ? load() : step;
                return last.apply(x);
            }
            long below = descend(depth - 1, x + depth, step, load);
            for (int i = 0; i < 10; i++) {
                below = step.apply(below);
            }
            return below;
        }

        static Step load() {
            return new OtherStep();
        }

        static long typed(Object value, int i) {
            if (value == null) {
                return i;
            }
            return value.hashCode() + (value instanceof String ? ((String) value).length() : 3);
        }

        static long caught(int i) {
            try {
                Object[] values = new Object[4];
                return values[i & 7].hashCode();
            } catch (NullPointerException | ArrayIndexOutOfBoundsException exception) {
                return 1;
            }
        }
    }

    /** Defines the three classes above itself and delegates all others to its parent. */
    private static final class RoundLoader extends ClassLoader {
        RoundLoader() {
            super(DeoptStorm.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("DeoptStorm$")) {
                return super.loadClass(name, resolve);
            }
            Class<?> found = findLoadedClass(name);
            if (found != null) {
                return found;
            }
            try (InputStream input = getParent().getResourceAsStream(name + ".class")) {
                byte[] bytes = input.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (java.io.IOException exception) {
                throw new ClassNotFoundException(name, exception);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long rounds = 0;
        while (ThreadCpu.nanos() - start < budget) {
            Runnable round = (Runnable) new RoundLoader().loadClass("DeoptStorm$Round").getConstructor().newInstance();
            round.run();
            rounds++;
        }
        ThreadCpu.truth("rounds=" + rounds);
        ThreadCpu.truthThread();
    }
}
