import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;
import java.nio.file.Path;
import java.util.Random;

/**
 * Calls C through the foreign function API (JDK 21 and later), which calls back: Java, C, Java, C and Java are on one
 * stack. A thread that C has started calls back as well.
 *
 * <p>The API is used by reflection, because the workloads are compiled for JDK 11.
 *
 * <p>Arguments: seconds of CPU time; path of libpanama.so.
 */
public final class Panama {
    private static final int LEVELS = 3;
    private static String library;
    private static long rounds;
    private static volatile long sink;

    /** Constants, so that the compiler sees through them. */
    private static final class Functions {
        static final MethodHandle CALL;
        static final MethodHandle SPIN;
        static final MethodHandle ON_THREAD;
        static final long CALLBACK;

        static {
            try {
                Api api = new Api(Path.of(library));
                MethodType type = MethodType.methodType(long.class, long.class);
                CALL = api.downcall("panama_call", 2);
                SPIN = api.downcall("panama_spin", 1);
                ON_THREAD = api.downcall("panama_on_thread", 2);
                CALLBACK = api.upcall(MethodHandles.lookup().findStatic(Panama.class, "callback", type), 1);
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        }
    }

    /** The foreign function API, for functions of numbers of 64 bits, as pointers are. */
    private static final class Api {
        private final Class<?> linkers = Class.forName("java.lang.foreign.Linker");
        private final Class<?> lookups = Class.forName("java.lang.foreign.SymbolLookup");
        private final Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        private final Class<?> segments = Class.forName("java.lang.foreign.MemorySegment");
        private final Class<?> descriptors = Class.forName("java.lang.foreign.FunctionDescriptor");
        private final Class<?> layouts = Class.forName("java.lang.foreign.MemoryLayout");
        private final Class<?> options = Class.forName("[Ljava.lang.foreign.Linker$Option;");
        private final Object none = Array.newInstance(options.getComponentType(), 0);
        private final Object linker = linkers.getMethod("nativeLinker").invoke(null);
        private final Object arena = arenas.getMethod("global").invoke(null);
        private final Object library;

        Api(Path path) throws ReflectiveOperationException {
            library = lookups.getMethod("libraryLookup", Path.class, arenas).invoke(null, path, arena);
        }

        private Object descriptor(int arguments) throws ReflectiveOperationException {
            Object number = Class.forName("java.lang.foreign.ValueLayout").getField("JAVA_LONG").get(null);
            Object all = Array.newInstance(layouts, arguments);
            for (int i = 0; i < arguments; i++) {
                Array.set(all, i, number);
            }
            return descriptors.getMethod("of", layouts, all.getClass()).invoke(null, number, all);
        }

        MethodHandle downcall(String name, int arguments) throws ReflectiveOperationException {
            Object found = lookups.getMethod("find", String.class).invoke(library, name);
            Object function = ((java.util.Optional<?>) found).orElseThrow();
            return (MethodHandle) linkers.getMethod("downcallHandle", segments, descriptors, options)
                .invoke(linker, function, descriptor(arguments), none);
        }

        long upcall(MethodHandle target, int arguments) throws ReflectiveOperationException {
            Object stub = linkers.getMethod("upcallStub", MethodHandle.class, descriptors, arenas, options)
                .invoke(linker, target, descriptor(arguments), arena, none);
            return (long) segments.getMethod("address").invoke(stub);
        }
    }

    /** Called by C; calls C again until the level is 0. */
    static long callback(long level) {
        try {
            if (level > 0) {
                return call(level - 1);
            }
            return work(rounds) + spin(rounds);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    private static long call(long level) throws Throwable {
        return (long) Functions.CALL.invokeExact(Functions.CALLBACK, level);
    }

    private static long spin(long rounds) throws Throwable {
        return (long) Functions.SPIN.invokeExact(rounds);
    }

    private static long work(long rounds) {
        long x = rounds;
        for (long i = 0; i < rounds; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    private static void nested() throws Throwable {
        sink += call(LEVELS - 1);
    }

    private static void started() throws Throwable {
        sink += (long) Functions.ON_THREAD.invokeExact(Functions.CALLBACK, 0L);
    }

    public static void main(String[] arguments) throws Throwable {
        long budget = ThreadCpu.budget(arguments, 3);
        library = arguments[1];
        Random random = new Random(1);
        long start = ThreadCpu.nanos();
        for (long call = 0; ThreadCpu.nanos() - start < budget; call++) {
            if (call % 500 == 499) {
                rounds = 1_000_000;
                started();
                continue;
            }
            // Mostly short, so that many samples are between the languages.
            rounds = random.nextInt(50) == 0 ? random.nextInt(100_000) : 0;
            for (int i = 0; i < 20; i++) {
                nested();
            }
        }
        ThreadCpu.truthThread();
    }
}
