import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;

/**
 * Code is compiled where stubs for calls from C have just been freed (JDK 21 and later, -XX:-SegmentedCodeCache: stubs
 * and methods share a heap). In each turn C calls Java by many stubs, these are freed, and many methods are compiled at
 * once. All stubs are made at the start, so that no new ones take the places of those that were freed.
 *
 * <p>Arguments: unused; path of libpanama.so.
 */
public final class StubReuse {
    private static final int TURNS = 30;
    private static final int STUBS = 40;
    private static final int METHODS = 40;
    private static final int CALLS = 2_000;
    private static final long CALLBACK_NANOS = 500_000;
    /** None is unloaded, so that nothing but stubs is freed. */
    private static final List<LongUnaryOperator> KEPT = new ArrayList<>();
    private static String library;
    private static volatile long sink;

    private static final class Functions {
        static final ForeignApi API;
        static final MethodHandle CALL;

        static {
            try {
                API = new ForeignApi(Path.of(library));
                CALL = API.downcall("panama_call", 2);
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        }
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    /** Called by C. */
    static long callback(long value) {
        long end = ThreadCpu.nanos() + CALLBACK_NANOS;
        long x = value;
        do {
            x = burn(x);
        } while (ThreadCpu.nanos() < end);
        return x;
    }

    private static long burn(long x) {
        for (int i = 0; i < 2_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    /** The stubs of a turn. */
    private static final class Stubs {
        final Object arena = Functions.API.arena();
        final long[] addresses = new long[STUBS];

        Stubs() throws ReflectiveOperationException {
            MethodHandle target = MethodHandles.lookup()
                .findStatic(StubReuse.class, "callback", MethodType.methodType(long.class, long.class));
            for (int i = 0; i < STUBS; i++) {
                addresses[i] = Functions.API.upcall(target, 1, arena);
            }
        }
    }

    private static void callThroughStubs(Stubs stubs) throws Throwable {
        for (long stub : stubs.addresses) {
            sink += (long) Functions.CALL.invokeExact(stub, 7L);
        }
        Functions.API.close(stubs.arena);
    }

    private static void compileMethods(byte[] template, int number) throws Exception {
        for (int i = 0; i < METHODS; i++) {
            Class<?> type = new Loader().define(GeneratedClass.of(template, number + i));
            var constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            LongUnaryOperator method = (LongUnaryOperator) constructor.newInstance();
            KEPT.add(method);
            for (int call = 0; call < CALLS; call++) {
                sink = method.applyAsLong(sink);
            }
        }
    }

    public static void main(String[] arguments) throws Throwable {
        library = arguments[1];
        byte[] template = template();
        Stubs[] turns = new Stubs[TURNS];
        for (int turn = 0; turn < TURNS; turn++) {
            turns[turn] = new Stubs();
        }
        for (int turn = 0; turn < TURNS; turn++) {
            callThroughStubs(turns[turn]);
            compileMethods(template, turn * METHODS + 1);
        }
        ThreadCpu.truthThread();
    }

    private static byte[] template() throws IOException {
        try (InputStream file = StubReuse.class.getResourceAsStream("Reusing00000.class")) {
            return file.readAllBytes();
        }
    }
}

/** The template of the methods that are compiled. */
final class Reusing00000 implements LongUnaryOperator {
    @Override
    public long applyAsLong(long x) {
        for (int i = 0; i < 20; i++) {
            x = x * 6364136223846793005L + i;
        }
        return x;
    }
}
