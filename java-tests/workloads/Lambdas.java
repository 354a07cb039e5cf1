import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.function.LongUnaryOperator;
import java.util.stream.LongStream;

/**
 * Streams, capturing lambdas, method references and method handles: hidden classes, LambdaForms and
 * string-concat bootstraps on the stack between {@code main} and {@code step}, where the time goes.
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
        // A bound chain, so that invokeExact goes through LambdaForms rather than straight to the target.
        handle = MethodHandles.filterReturnValue(handle, handle);
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        long streamNanos = 0;
        long handleNanos = 0;
        long textNanos = 0;
        while (now - start < budget) {
            for (int i = 0; i < 20; i++) {
                sink = stream(sink);
            }
            long afterStream = ThreadCpu.nanos();
            for (int i = 0; i < 20; i++) {
                sink = handle(handle, sink);
            }
            long afterHandle = ThreadCpu.nanos();
            for (int i = 0; i < 100; i++) {
                sink = text(sink);
            }
            long afterText = ThreadCpu.nanos();
            streamNanos += afterStream - now;
            handleNanos += afterHandle - afterStream;
            textNanos += afterText - afterHandle;
            now = afterText;
        }
        ThreadCpu.truthMethod("Lambdas.stream", streamNanos);
        ThreadCpu.truthMethod("Lambdas.handle", handleNanos);
        ThreadCpu.truthMethod("Lambdas.text", textNanos);
        ThreadCpu.truthThread();
    }
}
