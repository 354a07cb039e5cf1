import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.util.Optional;

/**
 * A thread that calls the C library's qsort, which calls it back for each comparison (JDK 21 and later). The foreign
 * function API is used by reflection, because the program is compiled for JDK 11; pointers are passed as numbers.
 */
public final class Upcalls {
    private static final String API = "java.lang.foreign.";
    private static final MethodHandle SORT;
    private static final long COMPARE;
    private static final long ELEMENTS;
    private static volatile long sink;

    static {
        try {
            Class<?> linkers = Class.forName(API + "Linker");
            Class<?> arenas = Class.forName(API + "Arena");
            Class<?> segments = Class.forName(API + "MemorySegment");
            Class<?> lookups = Class.forName(API + "SymbolLookup");
            Class<?> descriptors = Class.forName(API + "FunctionDescriptor");
            Class<?> options = Class.forName("[L" + API + "Linker$Option;");
            Object none = Array.newInstance(options.getComponentType(), 0);
            Object linker = linkers.getMethod("nativeLinker").invoke(null);
            Object arena = arenas.getMethod("global").invoke(null);
            Object library = linkers.getMethod("defaultLookup").invoke(linker);
            Object qsort = ((Optional<?>) lookups.getMethod("find", String.class).invoke(library, "qsort")).orElseThrow();
            SORT = (MethodHandle) linkers.getMethod("downcallHandle", segments, descriptors, options)
                .invoke(linker, qsort, descriptor(null, 4), none);
            MethodType type = MethodType.methodType(int.class, long.class, long.class);
            MethodHandle compare = MethodHandles.lookup().findStatic(Upcalls.class, "compare", type);
            Object stub = linkers.getMethod("upcallStub", MethodHandle.class, descriptors, arenas, options)
                .invoke(linker, compare, descriptor("JAVA_INT", 2), arena, none);
            COMPARE = (long) segments.getMethod("address").invoke(stub);
            Object memory = arenas.getMethod("allocate", long.class, long.class).invoke(arena, 64L, 8L);
            ELEMENTS = (long) segments.getMethod("address").invoke(memory);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    /** Describes a function of this many numbers of 64 bits. */
    private static Object descriptor(String result, int arguments) throws ReflectiveOperationException {
        Class<?> values = Class.forName(API + "ValueLayout");
        Class<?> layouts = Class.forName(API + "MemoryLayout");
        Class<?> descriptors = Class.forName(API + "FunctionDescriptor");
        Field number = values.getField("JAVA_LONG");
        Object all = Array.newInstance(layouts, arguments);
        for (int i = 0; i < arguments; i++) {
            Array.set(all, i, number.get(null));
        }
        if (result == null) {
            return descriptors.getMethod("ofVoid", all.getClass()).invoke(null, all);
        }
        return descriptors.getMethod("of", layouts, all.getClass()).invoke(null, values.getField(result).get(null), all);
    }

    static int compare(long left, long right) {
        sink += left;
        return 0;
    }

    private static void sort() throws Throwable {
        SORT.invokeExact(ELEMENTS, 3L, 8L, COMPARE);
    }

    private static void busyUpcall() {
        try {
            while (true) {
                sort();
            }
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Upcalls::busyUpcall, "busy-upcall");
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ends when the test closes the pipe.
        }
    }
}
