import java.lang.invoke.MethodHandle;
import java.lang.reflect.Array;
import java.nio.file.Path;

/**
 * The foreign function API (JDK 21 and later), for functions of numbers of 64 bits, as pointers are. By reflection,
 * because the workloads are compiled for JDK 11.
 */
final class ForeignApi {
    private final Class<?> linkers = Class.forName("java.lang.foreign.Linker");
    private final Class<?> lookups = Class.forName("java.lang.foreign.SymbolLookup");
    private final Class<?> arenas = Class.forName("java.lang.foreign.Arena");
    private final Class<?> segments = Class.forName("java.lang.foreign.MemorySegment");
    private final Class<?> descriptors = Class.forName("java.lang.foreign.FunctionDescriptor");
    private final Class<?> layouts = Class.forName("java.lang.foreign.MemoryLayout");
    private final Class<?> options = Class.forName("[Ljava.lang.foreign.Linker$Option;");
    private final Object none = Array.newInstance(options.getComponentType(), 0);
    private final Object linker = linkers.getMethod("nativeLinker").invoke(null);
    final Object global = arenas.getMethod("global").invoke(null);
    private final Object library;

    ForeignApi(Path path) throws ReflectiveOperationException {
        library = lookups.getMethod("libraryLookup", Path.class, arenas).invoke(null, path, global);
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

    /** Returns an arena whose stubs are freed by {@link #close}. */
    Object arena() throws ReflectiveOperationException {
        return arenas.getMethod("ofConfined").invoke(null);
    }

    void close(Object arena) throws ReflectiveOperationException {
        arenas.getMethod("close").invoke(arena);
    }

    long upcall(MethodHandle target, int arguments, Object arena) throws ReflectiveOperationException {
        Object stub = linkers.getMethod("upcallStub", MethodHandle.class, descriptors, arenas, options)
            .invoke(linker, target, descriptor(arguments), arena, none);
        return (long) segments.getMethod("address").invoke(stub);
    }
}
