import java.util.Random;

/**
 * Burns in JNI libraries: in a chain of C functions, in a C function that calls back into Java, and in a library that
 * is loaded later.
 *
 * <p>The calls are in random order, because calls of a few milliseconds in a fixed order would be in phase with the
 * scheduler's ticks.
 *
 * <p>Arguments: seconds of CPU time; path of libjniheavy.so; path of libjnilate.so.
 */
public final class JniHeavy {
    private static volatile long sink;

    static native long spin(long rounds);

    static native long callBack(long rounds);

    static native long late(long rounds);

    /** Called by {@code callBack} through JNI. */
    static long work(long rounds) {
        long x = rounds;
        for (long i = 0; i < rounds; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 4);
        System.load(arguments[1]);
        Random random = new Random(1);
        long[] spent = new long[3];
        long start = ThreadCpu.nanos();
        long before = start;
        boolean loaded = false;
        while (before - start < budget) {
            int kind = random.nextInt(loaded ? 3 : 2);
            switch (kind) {
                case 0: sink += spin(3_000_000); break;
                case 1: sink += callBack(3_000_000); break;
                default: sink += late(3_000_000); break;
            }
            long after = ThreadCpu.nanos();
            spent[kind] += after - before;
            before = after;
            if (!loaded && before - start > budget / 3) {
                System.load(arguments[2]);
                loaded = true;
                before = ThreadCpu.nanos();
            }
        }
        ThreadCpu.truthMethod("JniHeavy.spin", spent[0]);
        ThreadCpu.truthMethod("JniHeavy.callBack", spent[1]);
        ThreadCpu.truthMethod("JniHeavy.late", spent[2]);
        ThreadCpu.truthThread();
    }
}
