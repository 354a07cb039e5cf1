import java.io.InputStream;
import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;

/**
 * Redefines classes of the system loader while they run and afterwards. Class RedN runs only on threads named red-N.
 * All classes have the same size, so that the VM reuses the addresses of old methods. Garbage is collected every few
 * rounds, which frees old methods as well. At the end one class runs for 400 ms of CPU time without a redefinition.
 *
 * <p>Arguments: seconds of CPU time of all rounds together; CPU milliseconds of one round; rounds between two
 * collections (0: none); number of classes.
 *
 * <p>Needs {@code -Djdk.attach.allowAttachSelf=true}, because it attaches itself as a Java agent.
 */
public final class Redefinition {
    private static final long FINAL_NANOS = 400_000_000L;

    private static volatile Instrumentation instrumentation;
    private static volatile long sink;

    public static boolean isDone(long nanos) {
        return ThreadCpu.nanos() >= nanos;
    }

    public static void done(long result) {
        sink = result;
    }

    public static void agentmain(String options, Instrumentation given) {
        instrumentation = given;
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 4);
        long nanos = ThreadCpu.argument(arguments, 1, 12) * 1_000_000L;
        int collectionPeriod = ThreadCpu.argument(arguments, 2, 4);
        int count = ThreadCpu.argument(arguments, 3, 8);
        SelfAttach.load(Redefinition.class, "Can-Redefine-Classes");
        byte[] template;
        try (InputStream file = Redefinition.class.getResourceAsStream("Red00000.class")) {
            template = file.readAllBytes();
        }
        byte[][] bytes = new byte[count][];
        Class<?>[] classes = new Class<?>[count];
        for (int number = 0; number < count; number++) {
            bytes[number] = GeneratedClass.of(template, number + 1);
            classes[number] = MethodHandles.lookup().defineClass(bytes[number]);
        }
        long rounds = budget / nanos;
        for (int round = 0; round < rounds; round++) {
            int number = round % count;
            Constructor<?> constructor = classes[number].getDeclaredConstructor(long.class);
            constructor.setAccessible(true);
            Thread thread = new Thread((Runnable) constructor.newInstance(nanos), "red-" + (number + 1));
            thread.start();
            // A running method is kept as an old version and freed by a later redefinition of its class.
            for (int k = 0; k < 3 && thread.isAlive(); k++) {
                redefine(classes[number], bytes[number]);
                thread.join(nanos / 3_000_000);
            }
            thread.join();
            redefine(classes[number], bytes[number]);
            if (collectionPeriod > 0 && round % collectionPeriod == 0) {
                System.gc();
            }
            int next = (number + 1) % count;
            redefine(classes[next], bytes[next]);
        }
        // Without further redefinitions names are certain.
        Constructor<?> constructor = classes[0].getDeclaredConstructor(long.class);
        constructor.setAccessible(true);
        Thread last = new Thread((Runnable) constructor.newInstance(FINAL_NANOS), "red-1");
        last.start();
        last.join();
        ThreadCpu.truth("method=rounds cpu_ns=" + rounds * nanos + " count=" + rounds);
        ThreadCpu.truthThread();
    }

    private static void redefine(Class<?> target, byte[] bytes) throws Exception {
        instrumentation.redefineClasses(new ClassDefinition(target, bytes));
    }
}

/** The template of all classes. */
final class Red00000 implements Runnable {
    private final long nanos;

    public Red00000(long nanos) {
        this.nanos = nanos;
    }

    @Override
    public void run() {
        work00000();
    }

    private void work00000() {
        long x = nanos;
        do {
            x = spin00000(x);
        } while (!Redefinition.isDone(nanos));
        Redefinition.done(x);
    }

    private static long spin00000(long x) {
        for (int i = 0; i < 50_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }
}
