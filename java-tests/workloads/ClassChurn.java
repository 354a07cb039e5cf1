import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Loads and unloads generations of classes that live for a few samples. Generation N is the class GenN, whose method
 * workN burns CPU time on the thread gen-N; afterwards all references to it are dropped. Every few generations garbage
 * is collected. All generations have the same size, so that the VM reuses their addresses.
 *
 * <p>Every second generation is a hidden class (an anonymous class on JDK 11); each of the others has its own loader.
 *
 * <p>Arguments: seconds of CPU time of all generations together; CPU milliseconds of one generation; generations
 * between two collections (0: none).
 */
public final class ClassChurn {
    private static volatile long sink;
    private static final AtomicLong TOTAL = new AtomicLong();

    public static boolean isDone(long nanos) {
        return ThreadCpu.nanos() >= nanos;
    }

    public static void done(long result) {
        sink = result;
        TOTAL.addAndGet(ThreadCpu.nanos());
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    private static Class<?> define(byte[] bytes, boolean hidden) throws Exception {
        if (!hidden) {
            return new Loader().define(bytes);
        }
        try {
            Class<?> option = Class.forName("java.lang.invoke.MethodHandles$Lookup$ClassOption");
            Object none = Array.newInstance(option, 0);
            Object lookup = MethodHandles.Lookup.class
                    .getMethod("defineHiddenClass", byte[].class, boolean.class, none.getClass())
                    .invoke(MethodHandles.lookup(), bytes, true, none);
            return ((MethodHandles.Lookup) lookup).lookupClass();
        } catch (ClassNotFoundException noHiddenClasses) {
            Class<?> unsafe = Class.forName("sun.misc.Unsafe");
            Field instance = unsafe.getDeclaredField("theUnsafe");
            instance.setAccessible(true);
            return (Class<?>) unsafe.getMethod("defineAnonymousClass", Class.class, byte[].class, Object[].class)
                    .invoke(instance.get(null), ClassChurn.class, bytes, null);
        }
    }

    private static Thread start(byte[] template, int number, long nanos) throws Exception {
        Class<?> generation = define(GeneratedClass.of(template, number), number % 2 == 1);
        Constructor<?> constructor = generation.getDeclaredConstructor(long.class);
        constructor.setAccessible(true);
        Runnable work = (Runnable) constructor.newInstance(nanos);
        Thread thread = new Thread(work, "gen-" + number);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        TOTAL.set(0);
        long budget = ThreadCpu.budget(arguments, 4);
        long nanos = ThreadCpu.argument(arguments, 1, 12) * 1_000_000L;
        int collectionPeriod = ThreadCpu.argument(arguments, 2, 4);
        byte[] template = template();
        int number = 1;
        Thread previous = null;
        while (TOTAL.get() < budget) {
            Thread thread = start(template, number, nanos);
            // Two generations overlap, so that one runs while garbage is collected.
            if (previous != null) {
                previous.join();
            }
            previous = thread;
            if (collectionPeriod > 0 && number % collectionPeriod == 0) {
                System.gc();
            }
            number++;
        }
        previous.join();
        ThreadCpu.truth("method=generations cpu_ns=" + TOTAL.get() + " count=" + (number - 1));
        ThreadCpu.truthThread();
    }

    private static byte[] template() throws IOException {
        try (InputStream file = ClassChurn.class.getResourceAsStream("Gen00000.class")) {
            return file.readAllBytes();
        }
    }
}

/** The template of all generations. */
final class Gen00000 implements Runnable {
    private final long nanos;

    public Gen00000(long nanos) {
        this.nanos = nanos;
    }

    @Override
    public void run() {
        work00000();
    }

    private void work00000() {
        long x = nanos;
        do {
            x = spin00000(x);
        } while (!ClassChurn.isDone(nanos));
        ClassChurn.done(x);
    }

    private static long spin00000(long x) {
        for (int i = 0; i < 50_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }
}
