import java.io.InputStream;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;
import java.security.ProtectionDomain;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * A program under an instrumenting agent: it loads a class every few milliseconds, runs it once and
 * allocates trees of objects. The agent first retransforms a batch of classes of the JDK and of the program, then three
 * classes at a time.
 *
 * <p>Arguments: seconds of CPU time; milliseconds between two retransformations; CPU milliseconds between two classes
 * that are loaded.
 *
 * <p>Needs {@code -Djdk.attach.allowAttachSelf=true}, because it attaches itself as a Java agent.
 */
public final class Retransformation {
    private static volatile Instrumentation instrumentation;
    private static volatile long sink;
    private static volatile boolean isOver;

    public static void agentmain(String options, Instrumentation given) {
        instrumentation = given;
    }

    static final class Node {
        final Node left;
        final Node right;

        Node(Node left, Node right) {
            this.left = left;
            this.right = right;
        }
    }

    static Node grow(int depth) {
        return depth == 0 ? new Node(null, null) : new Node(grow(depth - 1), grow(depth - 1));
    }

    static long count(Node node) {
        return node == null ? 0 : 1 + count(node.left) + count(node.right);
    }

    /** Returns a copy of each class, so that the VM parses it like one that was changed. */
    static final class Copying implements ClassFileTransformer {
        @Override
        public byte[] transform(
                ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            return redefined == null ? null : bytes.clone();
        }
    }

    /** Returns the classes that the agent retransforms: the program's own and collections of the JDK. */
    private static List<Class<?>> targets() {
        List<Class<?>> targets = new ArrayList<>();
        for (Class<?> loaded : instrumentation.getAllLoadedClasses()) {
            boolean isMeant = loaded.getName().startsWith("Retransformation")
                    || loaded.getName().startsWith("java.util.Hash") || loaded.getName().startsWith("java.util.Array");
            if (isMeant && instrumentation.isModifiableClass(loaded)) {
                targets.add(loaded);
            }
        }
        return targets;
    }

    private static void retransform(long periodMillis) {
        try {
            List<Class<?>> targets = targets();
            instrumentation.retransformClasses(targets.toArray(new Class<?>[0]));
            int redefinitions = 1;
            for (int next = 0; !isOver; next += 3) {
                Thread.sleep(periodMillis);
                Class<?>[] some = new Class<?>[3];
                for (int k = 0; k < some.length; k++) {
                    some[k] = targets.get((next + k) % targets.size());
                }
                instrumentation.retransformClasses(some);
                redefinitions++;
            }
            ThreadCpu.truth("agent=retransformation classes=" + targets.size() + " redefinitions=" + redefinitions);
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long budget = ThreadCpu.budget(arguments, 4);
        long periodMillis = ThreadCpu.argument(arguments, 1, 200);
        long nanosPerClass = ThreadCpu.argument(arguments, 2, 3) * 1_000_000L;
        SelfAttach.load(Retransformation.class, "Can-Retransform-Classes");
        instrumentation.addTransformer(new Copying(), true);
        byte[] template;
        try (InputStream file = Retransformation.class.getResourceAsStream("Work00000.class")) {
            template = file.readAllBytes();
        }
        Thread agent = new Thread(() -> retransform(periodMillis), "agent");
        agent.start();
        ArrayDeque<Node> kept = new ArrayDeque<>();
        long start = ThreadCpu.nanos();
        long now = start;
        int number = 0;
        while (now - start < budget) {
            number++;
            Class<?> loaded = MethodHandles.lookup().defineClass(GeneratedClass.of(template, number));
            Constructor<?> constructor = loaded.getDeclaredConstructor();
            constructor.setAccessible(true);
            Runnable work = (Runnable) constructor.newInstance();
            work.run();
            long end = now + nanosPerClass;
            do {
                kept.addLast(grow(11));
                if (kept.size() > 60) {
                    sink += count(kept.removeFirst());
                }
                now = ThreadCpu.nanos();
            } while (now < end);
        }
        isOver = true;
        agent.join();
        ThreadCpu.truth("method=Retransformation.main cpu_ns=" + (now - start) + " classes=" + number);
        ThreadCpu.truthThread();
    }

    public static void done(long result) {
        sink = result;
    }
}

/** The template of the classes that are loaded. */
final class Work00000 implements Runnable {
    @Override
    public void run() {
        long x = 1;
        for (int i = 0; i < 20_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        Retransformation.done(x);
    }
}
