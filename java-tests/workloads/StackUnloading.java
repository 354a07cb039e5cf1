import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;

/**
 * Unloads classes of which some were loaded before libstackunload.so registered its handler, and prints what it was
 * called with.
 *
 * <p>Argument: path of libstackunload.so.
 */
public final class StackUnloading {
    private static final int BEFORE = 5;
    private static final int AFTER = 20;

    static native void register();

    static native void expect(Method method);

    static native void await();

    static native String result();

    /** Defines a copy of {@link Unloaded} that nothing else refers to. */
    private static final class OneClassLoader extends ClassLoader {
        OneClassLoader() {
            super(null);
        }

        Class<?> define() throws Exception {
            try (InputStream input = StackUnloading.class.getResourceAsStream("StackUnloading$Unloaded.class")) {
                byte[] bytes = input.readAllBytes();
                return defineClass("StackUnloading$Unloaded", bytes, 0, bytes.length);
            }
        }
    }

    /** A class to be unloaded, with a constructor and a method. */
    public static final class Unloaded {
        public static int vanishing() {
            return 1;
        }
    }

    private static Method load() throws Exception {
        Method method = new OneClassLoader().define().getMethod("vanishing");
        method.invoke(null);
        return method;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        List<Method> methods = new ArrayList<>();
        for (int i = 0; i < BEFORE; i++) {
            methods.add(load());
        }
        register();
        for (int i = 0; i < AFTER; i++) {
            methods.add(load());
        }
        WeakReference<ClassLoader> last = null;
        for (Method method : methods) {
            expect(method);
            last = new WeakReference<>(method.getDeclaringClass().getClassLoader());
        }
        methods.clear();
        while (last.get() != null) {
            System.gc();
        }
        System.gc();
        for (int i = 0; i < BEFORE + AFTER; i++) {
            await();
        }
        System.out.println("== result");
        System.out.println(result());
        System.out.println("== end");
    }
}
