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

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 200_000; i++) {
            sink = outer(sink);
        }
        Thread busy = new Thread(Crossings::cross, "busy-crossing");
        busy.setDaemon(true);
        busy.start();
        System.out.println("ready");
        System.out.flush();
        System.in.read();
    }
}
