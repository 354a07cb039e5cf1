import java.io.File;

/**
 * Runs workloads that load and unload classes, start threads, deoptimise, allocate, throw and use virtual threads
 * (where the JDK has them) one after the other in one JVM, until a file exists: nothing that one round leaves is used
 * by another.
 *
 * <p>Arguments: path of the file.
 */
public final class Churn {
    private static final boolean HAS_VIRTUAL_THREADS = Runtime.version().feature() >= 21;

    public static void main(String[] arguments) throws Exception {
        File end = new File(arguments[0]);
        while (!end.exists()) {
            AllocHeavy.main(new String[] {"2"});
            ClassChurn.main(new String[] {"1.5", "12", "3"});
            DeoptStorm.main(new String[] {"2"});
            // Each round has hundreds of threads, and each thread is an entry of the account.
            ManyShortThreads.main(new String[] {"0.3"});
            Exceptions.main(new String[] {"1"});
            DeepRecursion.main(new String[] {"1"});
            if (HAS_VIRTUAL_THREADS) {
                VirtualThreads.main(new String[] {"2"});
            }
        }
    }
}
