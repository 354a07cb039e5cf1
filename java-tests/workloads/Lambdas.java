import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Random;
import java.util.function.LongUnaryOperator;
import java.util.stream.LongStream;

/**
 * Uses streams, capturing lambdas, method references and method handles: the stack between {@code main} and {@code
 * step}, where the time is spent, has hidden classes, LambdaForms and string concatenation.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class Lambdas {
    private static volatile long sink;

    static long step(long x) {
        for (int i = 0; i < 200; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    static long stream(long seed) {
        LongUnaryOperator add = x -> step(x + seed);
        return LongStream.range(0, 1000).map(Lambdas::step).map(add).filter(x -> x != 0).sum();
    }

    static long handle(MethodHandle handle, long seed) throws Throwable {
        long x = seed;
        for (int i = 0; i < 1000; i++) {
            x = (long) handle.invokeExact(x);
        }
        return x;
    }

    static long text(long seed) {
        long x = seed;
        for (int i = 0; i < 200; i++) {
            String text = "x" + x + ":" + i;
            x = step(x + text.hashCode());
        }
        return x;
    }

    public static void main(String[] arguments) throws Throwable {
        MethodHandle handle = MethodHandles.lookup()
                .findStatic(Lambdas.class, "step", MethodType.methodType(long.class, long.class));
        // A combined handle, so that invokeExact passes through LambdaForms instead of calling the target directly.
        handle = MethodHandles.filterReturnValue(handle, handle);
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        // The order is random, so that no call is in phase with the scheduler's ticks.
        Random random = new Random(1);
        String[] names = {"stream", "handle", "text"};
        long[] spent = new long[names.length];
        while (now - start < budget) {
            int kind = random.nextInt(names.length);
            for (int i = 0; i < (kind == 2 ? 100 : 20); i++) {
                switch (kind) {
                    case 0: sink = stream(sink); break;
                    case 1: sink = handle(handle, sink); break;
                    default: sink = text(sink); break;
                }
            }
            long after = ThreadCpu.nanos();
            spent[kind] += after - now;
            now = after;
        }
        for (int kind = 0; kind < names.length; kind++) {
            ThreadCpu.truthMethod("Lambdas." + names[kind], spent[kind]);
        }
        ThreadCpu.truthThread();
    }
}
