import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.stream.Stream;

/**
 * Enqueues stacks through libstackqueue.so, and prints what the queue's functions printed.
 *
 * <p>Argument: path of libstackqueue.so.
 */
public final class StackQueues {
    static native int capabilities();

    static native boolean register(int size);

    static native int enqueue(long argument, boolean withContext);

    static native void hold();

    static native void awaitHold();

    static native void release();

    static native String drained();

    static native String size();

    static native long change(int n, long by);

    static native void resize(int size);

    static native String refusals();

    static native String deregister();

    private static void show(String name, Object answer) {
        System.out.println("== " + name);
        System.out.println(answer);
    }

    /** Threads of the agent. */
    private static long threads() throws Exception {
        try (Stream<Path> tasks = Files.list(Paths.get("/proc/self/task"))) {
            return tasks.filter(StackQueues::isOurs).count();
        }
    }

    private static boolean isOurs(Path task) {
        try {
            return Files.readString(task.resolve("comm")).startsWith("tickwalk");
        } catch (java.io.IOException ended) {
            return false;
        }
    }

    /** A frame of its own. */
    private static int work(long argument, boolean withContext) {
        return enqueue(argument, withContext);
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        show("threads before", threads());
        show("capabilities", capabilities());
        show("refusals before", refusals());
        show("registered", register(4));
        for (boolean withContext : new boolean[] {false, true}) {
            show("enqueued", work(1, withContext));
            show("frames " + withContext, drained());
        }
        // The thread that drains has its name by then, because it sets it before its first round.
        show("threads after", threads());
        hold();
        show("first", work(10, false));
        awaitHold();
        StringBuilder codes = new StringBuilder();
        for (int argument = 11; argument < 15; argument++) {
            codes.append(work(argument, false)).append(' ');
        }
        show("until full", codes);
        show("size when full", size());
        StringBuilder elements = new StringBuilder();
        for (int n : new int[] {0, 1, 2, 3, -1, -2, -3, -4}) {
            elements.append(change(n, 0)).append(' ');
        }
        show("elements", elements);
        show("changed", change(-1, 100));
        resize(8);
        show("size before the drain", size());
        release();
        show("in order", drained());
        // The elements behind the first came during that drain, so they are those of the next.
        show("in order again", drained());
        Thread other = new Thread(() -> show("other thread", enqueue(1, false)));
        other.start();
        other.join();
        // The new ring is there when the thread that drains has finished its round.
        String size;
        do {
            work(20, false);
            show("after the resize", drained());
            size = size();
        } while (size.contains("of 4"));
        show("size after the drain", size);
        show("refusals", refusals());
        show("deregister", deregister());
        show("closed", work(30, false));
        // The thread's queue ends with it.
        Thread short_lived = new Thread(() -> {
            register(2);
            work(40, false);
        });
        short_lived.start();
        short_lived.join();
        show("of an ended thread", drained());
        System.out.println("== end");
    }
}
