import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.security.ProtectionDomain;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A Java agent that instruments: it replaces the classes of a workload and of {@code java.util.regex} again and again
 * by copies of themselves, and prints {@code truth retransformed=N} when the JVM ends.
 */
public final class InstrumentingAgent {
    private static final AtomicLong RETRANSFORMED = new AtomicLong();
    private static final long PAUSE_MILLISECONDS = 100;

    private static final class Copier implements ClassFileTransformer {
        @Override
        public byte[] transform(ClassLoader loader, String name, Class<?> type, ProtectionDomain domain, byte[] bytes) {
            if (type == null) {
                return null;
            }
            RETRANSFORMED.incrementAndGet();
            return bytes.clone();
        }
    }

    private static boolean isChosen(Instrumentation instrumentation, Class<?> type) {
        return (type.getName().startsWith("java.util.regex.") || type.getName().equals("RegexStrings"))
                && instrumentation.isModifiableClass(type);
    }

    private static void retransformForEver(Instrumentation instrumentation) {
        try {
            while (true) {
                for (Class<?> type : instrumentation.getAllLoadedClasses()) {
                    if (isChosen(instrumentation, type)) {
                        instrumentation.retransformClasses(type);
                    }
                }
                Thread.sleep(PAUSE_MILLISECONDS);
            }
        } catch (UnmodifiableClassException | InterruptedException exception) {
            throw new IllegalStateException(exception);
        }
    }

    public static void premain(String arguments, Instrumentation instrumentation) {
        instrumentation.addTransformer(new Copier(), true);
        Thread thread = new Thread(() -> retransformForEver(instrumentation), "instrumenting");
        thread.setDaemon(true);
        thread.start();
        Runtime.getRuntime().addShutdownHook(
                new Thread(() -> ThreadCpu.truth("retransformed=" + RETRANSFORMED.get())));
    }
}
