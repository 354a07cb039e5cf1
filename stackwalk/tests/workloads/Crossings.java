import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * Compiled code calls interpreted code, which calls compiled code; requires that middle is excluded from compilation.
 */
public class Crossings {
    static volatile long sink;

    static long inner(long value) {
        for (int i = 0; i < 3; i++) {
            value = value * 31 + i;
        }
        return value;
    }

    static long middle(long value) {
        return inner(value) + 1;
    }

    static long outer(long value) {
        return middle(value) ^ value;
    }

    static void cross() {
        while (true) {
            sink = outer(sink);
            // A native method that is no intrinsic.
            if (Thread.holdsLock(Crossings.class)) {
                return;
            }
        }
    }

    static void link(MethodHandle handle) {
        try {
            while (true) {
                sink = (long) handle.invokeExact(sink);
            }
        } catch (Throwable thrown) {
            throw new AssertionError(thrown);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 200_000; i++) {
            sink = outer(sink);
        }
        Thread busy = new Thread(Crossings::cross, "busy-crossing");
        busy.setDaemon(true);
        busy.start();
        MethodType type = MethodType.methodType(long.class, long.class);
        MethodHandle handle = MethodHandles.lookup().findStatic(Crossings.class, "inner", type);
        Thread linking = new Thread(() -> link(handle), "busy-linking");
        linking.setDaemon(true);
        linking.start();
        System.out.println("ready");
        System.out.flush();
        System.in.read();
    }
}
