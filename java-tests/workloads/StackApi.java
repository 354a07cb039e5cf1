import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.stream.Stream;

/**
 * Calls the stack-walk API through libstackapi.so and libstackapi435.so, and prints each answer below a line with two
 * equals signs.
 *
 * <p>Arguments: none, to print signals, timers and threads only; or paths of libstackapi.so, libstackapi435.so and
 * libstackapi3.so; number of walks with wrong registers.
 */
public final class StackApi {
    static native String walk(int options, boolean withContext);

    static native String chain(int options, boolean withContext);

    static native String thread(int options, boolean withContext);

    static native String rules();

    static native String describe(Method method);

    static native long address(Method method);

    static native String name(long method);

    static native String fuzz(long count, long seed);

    static native String trace435(int options, int depth);

    static native String chain435(int options, int depth);

    static native String thread435(int options);

    static native String ticks(int scenario);

    static native String callbacks();

    /** Called by {@code chain} through JNI. */
    static String inner(int options, boolean withContext) {
        return walk(options, withContext);
    }

    /** Called by {@code chain435} through JNI. */
    static String inner435(int options, int depth) {
        return trace435(options, depth);
    }

    private static void show(String name, String text) {
        System.out.println("== " + name);
        System.out.println(text);
    }

    /** Defines a copy of {@link Unloaded} that nothing else refers to. */
    private static final class OneClassLoader extends ClassLoader {
        OneClassLoader() {
            super(null);
        }

        Class<?> define() throws Exception {
            try (InputStream input = StackApi.class.getResourceAsStream("StackApi$Unloaded.class")) {
                byte[] bytes = input.readAllBytes();
                return defineClass("StackApi$Unloaded", bytes, 0, bytes.length);
            }
        }
    }

    /** A class to be unloaded. */
    public static final class Unloaded {
        public static int vanishing() {
            return 1;
        }
    }

    private static long unload() throws Exception {
        OneClassLoader loader = new OneClassLoader();
        Method method = loader.define().getMethod("vanishing");
        long address = address(method);
        show("loaded", name(address));
        WeakReference<ClassLoader> dead = new WeakReference<>(loader);
        loader = null;
        method = null;
        while (dead.get() != null) {
            System.gc();
        }
        // The loader's data is removed from the VM's lists by the collection that clears the reference, or by the next.
        System.gc();
        return address;
    }

    /** Handled signals, timers, and threads of the agent. */
    private static String process() throws Exception {
        StringBuilder text = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get("/proc/self/status"))) {
            if (line.startsWith("SigCgt")) {
                text.append(line).append('\n');
            }
        }
        text.append("timers ").append(Files.readAllLines(Paths.get("/proc/self/timers")).size()).append('\n');
        try (Stream<Path> tasks = Files.list(Paths.get("/proc/self/task"))) {
            for (Path task : (Iterable<Path>) tasks::iterator) {
                String name = Files.readString(task.resolve("comm")).trim();
                if (name.startsWith("tickwalk")) {
                    text.append("thread ").append(name).append('\n');
                }
            }
        }
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        show("process", process());
        if (arguments.length == 0) {
            return;
        }
        System.load(arguments[0]);
        System.load(arguments[1]);
        System.load(arguments[2]);
        for (boolean context : new boolean[] {false, true}) {
            String how = context ? "context" : "null";
            for (int options = 0; options < 2; options++) {
                show("walk " + how + " " + options, walk(options, context));
                show("chain " + how + " " + options, chain(options, context));
                show("thread " + how + " " + options, thread(options, context));
            }
        }
        show("rules", rules());
        show("describe", describe(StackApi.class.getDeclaredMethod("inner", int.class, boolean.class)));
        show("unloaded", name(unload()));
        show("not a method", name(16));
        for (int options = 0; options < 2; options++) {
            show("trace435 " + options, trace435(options, 100));
            show("chain435 " + options, chain435(options, 100));
            show("thread435 " + options, thread435(options | 2));
        }
        show("thread435 refused", thread435(0));
        show("trace435 depth", trace435(0, 2));
        for (int scenario = 0; scenario < 5; scenario++) {
            show("ticks " + scenario, ticks(scenario));
        }
        show("callbacks", callbacks());
        show("fuzz", fuzz(Long.parseLong(arguments[3]), 1));
        System.out.println("== end");
    }
}
