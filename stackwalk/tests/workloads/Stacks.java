import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;

/** Threads with known stacks: quiet ones wait at a fixed place, busy ones run until the JVM ends. */
public class Stacks {
    static volatile boolean hold;
    static volatile long sink;
    static final CountDownLatch ready = new CountDownLatch(6);
    static final Object monitor = new Object();

    // Quiet threads.

    static void waitForever() {
        ready.countDown();
        while (true) {
            LockSupport.park();
        }
    }

    static int descend(int depth, boolean stay) {
        if (depth == 0) {
            if (stay) {
                waitForever();
            }
            return 1;
        }
        return descend(depth - 1, stay) + 1;
    }

    static int outer(int value, boolean stay) {
        return middle(value, stay) + 1;
    }

    static int middle(int value, boolean stay) {
        return inner(value + 1, stay) ^ 3;
    }

    static int inner(int value, boolean stay) {
        if (stay) {
            waitForever();
        }
        return value * 7;
    }

    static void quietRecursion() {
        for (int i = 0; i < 20_000; i++) {
            sink += descend(20, false);
        }
        descend(100, true);
    }

    static void quietInlined() {
        for (int i = 0; i < 200_000; i++) {
            sink += outer(i, false);
        }
        outer(1, true);
    }

    static void quietLambda() {
        IntStream.range(0, 3).map(i -> i + 1).forEach(i -> waitForever());
    }

    static void quietReflection() {
        try {
            Stacks.class.getDeclaredMethod("waitForever").invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    static void quietMonitor() {
        synchronized (monitor) {
            ready.countDown();
            while (true) {
                try {
                    monitor.wait();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
        }
    }

    static void quietHandle() {
        try {
            MethodHandle handle = MethodHandles.lookup()
                    .findStatic(Stacks.class, "waitForever", MethodType.methodType(void.class));
            handle.invokeExact();
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    // Busy threads.

    static int level0(int i) { return level1(i) + 1; }
    static int level1(int i) { return level2(i) ^ i; }
    static int level2(int i) { return level3(i) + 2; }
    static int level3(int i) { return level4(i) * 3; }
    static int level4(int i) { return level5(i) + level5(i + 1); }
    static int level5(int i) { return level6(i, i) - 1; }
    static int level6(int i, int j) {
        int sum = i;
        for (int k = 0; k < 10; k++) {
            sum = sum * 31 + j;
        }
        return sum;
    }

    static void busyChain() {
        for (int i = 0; ; i++) {
            sink += level0(i);
        }
    }

    static int fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    static void busyRecursion() {
        while (true) {
            sink += fibonacci(18);
        }
    }

    static void busyLambda() {
        while (true) {
            sink += IntStream.range(0, 200).map(i -> i * 3).filter(i -> (i & 1) == 0).sum();
        }
    }

    static int thrower(int depth) {
        if (depth == 0) {
            throw new IllegalStateException("expected");
        }
        return thrower(depth - 1) + 1;
    }

    static int catcher(int depth) {
        try {
            return thrower(depth);
        } catch (IllegalStateException e) {
            return e.getMessage().length();
        }
    }

    static void busyException() {
        while (true) {
            sink += catcher(10);
        }
    }

    static long textWork(byte[] bytes, int i) throws Exception {
        byte[] copy = new byte[bytes.length];
        System.arraycopy(bytes, 0, copy, 1, bytes.length - 1);
        String text = new String(copy, "UTF-8") + i;
        java.util.zip.CRC32 crc = new java.util.zip.CRC32();
        crc.update(copy);
        byte[] digest = java.security.MessageDigest.getInstance("SHA-256").digest(copy);
        return text.indexOf("zz" + i) + text.replace('a', 'b').hashCode() + crc.getValue() + digest[0]
                + (long) (Math.sin(i) * 100 + Math.pow(i, 0.3)) + (text.equals("x" + i) ? 1 : 0);
    }

    static void busyText() {
        byte[] bytes = new byte[700];
        java.util.Arrays.fill(bytes, (byte) 'a');
        try {
            for (int i = 0; ; i++) {
                sink += textWork(bytes, i);
            }
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    interface Shape { int area(int size); }
    static class Square implements Shape { public int area(int size) { return size * size; } }
    static class Strip implements Shape { public int area(int size) { return size; } }
    static class Disc implements Shape { public int area(int size) { return size * 3 + 1; } }
    static class Line implements Shape { public int area(int size) { return 0; } }

    static int areas(Shape[] shapes, int size) {
        int sum = 0;
        for (Shape shape : shapes) {
            sum += shape.area(size);
        }
        return sum;
    }

    static void busyInterface() {
        Shape[] shapes = {new Square(), new Strip(), new Disc(), new Line()};
        for (int i = 0; ; i++) {
            sink += areas(shapes, i);
        }
    }

    static synchronized void locked(int i) {
        sink += i;
    }

    static void busyLocks() {
        for (int i = 0; ; i++) {
            locked(i);
        }
    }

    static int allocate(int i) {
        List<Integer> list = new ArrayList<>();
        for (int k = 0; k < 100; k++) {
            list.add(i + k);
        }
        return list.hashCode();
    }

    static void busyAllocation() {
        for (int i = 0; ; i++) {
            sink += allocate(i);
        }
    }

    static int handled(int i) {
        return i + 5;
    }

    static void busyHandle() {
        try {
            MethodHandle handle = MethodHandles.lookup()
                    .findStatic(Stacks.class, "handled", MethodType.methodType(int.class, int.class));
            IntUnaryOperator operator = Stacks::handled;
            for (int i = 0; ; i++) {
                sink += (int) handle.invokeExact(i) + operator.applyAsInt(i);
            }
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        start("quiet-recursion", Stacks::quietRecursion);
        start("quiet-inlined", Stacks::quietInlined);
        start("quiet-lambda", Stacks::quietLambda);
        start("quiet-reflection", Stacks::quietReflection);
        start("quiet-monitor", Stacks::quietMonitor);
        start("quiet-handle", Stacks::quietHandle);
        ready.await();
        start("busy-chain", Stacks::busyChain);
        start("busy-recursion", Stacks::busyRecursion);
        start("busy-lambda", Stacks::busyLambda);
        start("busy-exception", Stacks::busyException);
        start("busy-text", Stacks::busyText);
        start("busy-interface", Stacks::busyInterface);
        start("busy-locks", Stacks::busyLocks);
        start("busy-locks2", Stacks::busyLocks);
        start("busy-allocation", Stacks::busyAllocation);
        start("busy-handle", Stacks::busyHandle);
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ends when the test closes the pipe.
        }
    }
}
