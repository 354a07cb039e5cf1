import java.util.concurrent.CountDownLatch;

/** Two virtual threads that stay mounted; uses reflection to compile for JDK 11. */
public class Virtual {
    static volatile long sink;
    static final CountDownLatch ready = new CountDownLatch(2);

    static void spin() {
        ready.countDown();
        while (true) {
            sink += work((int) sink);
        }
    }

    static int work(int seed) {
        int sum = seed;
        for (int i = 0; i < 1000; i++) {
            sum = sum * 31 + i;
        }
        return sum;
    }

    /** Unmounts at the bottom of a deep stack, of which only the newest frames are thawed. */
    static int descend(int depth) throws InterruptedException {
        if (depth == 0) {
            Thread.sleep(50);
            spin();
            return 1;
        }
        return descend(depth - 1) + 1;
    }

    static void deep() {
        try {
            sink += descend(400);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        java.lang.reflect.Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        start.invoke(null, (Runnable) Virtual::spin);
        start.invoke(null, (Runnable) Virtual::deep);
        ready.await();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ends when the test closes the pipe.
        }
    }
}
