import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import one.profiler.AsyncProfiler;

/**
 * Profiles itself by async-profiler's Java API, and prints each answer below a line {@code == NAME}.
 *
 * <p>Arguments: the library, empty if it is loaded as an agent; a folder for results.
 */
public final class AsyncApi {
    /** The API under another name and with fewer methods, as programs copy it. */
    static final class Copy {
        Copy(String library) {
            System.load(library);
        }

        native String execute0(String command) throws IOException;
    }

    interface Execute {
        String run(String command) throws IOException;
    }

    private static volatile long sink;

    static void burn(long nanos) {
        long x = sink;
        long end = ThreadCpu.nanos() + nanos;
        do {
            for (int i = 0; i < 50_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (ThreadCpu.nanos() < end);
        sink = x;
    }

    static void hot(String name, long nanos) {
        long begin = ThreadCpu.nanos();
        burn(nanos);
        ThreadCpu.truthMethod(name, ThreadCpu.nanos() - begin);
    }

    private static void section(String name, String text) {
        System.out.println("== " + name);
        System.out.println(text);
    }

    private static void failing(String name, Execute execute, String command) {
        try {
            section(name, execute.run(command));
        } catch (IOException | RuntimeException e) {
            section(name, e.getClass().getName() + ": " + e.getMessage());
        }
    }

    public static void main(String[] arguments) throws Exception {
        AsyncProfiler api = new AsyncProfiler();
        Execute execute = arguments[0].isEmpty() ? api::execute0 : new Copy(arguments[0])::execute0;
        String folder = arguments[1];
        section("version", execute.run("version"));
        section("idle", execute.run("status"));
        section("list", execute.run("list"));
        failing("event", execute, "start,event=alloc");
        failing("misspelt", execute, "start,interval=1parsec");
        failing("nothing to stop", execute, "stop");
        failing("no profile", execute, "collapsed");

        section("start", execute.run("start,event=cpu,interval=1000000,intervall=1ms,file=" + folder + "/at-stop.jfr"));
        section("status", execute.run("status"));
        failing("second start", execute, "start,event=cpu");
        hot("hot", 300_000_000L);
        section("running", execute.run("collapsed,total"));
        section("stop", execute.run("stop"));
        section("ended", execute.run("collapsed,total,threads"));
        section("text", execute.run("flat=3,traces=2"));
        for (String name : new String[] {"page.html", "flight.jfr", "again.collapsed", "copy.tickwalk", "text.txt"}) {
            section(name, execute.run("dump,file=" + folder + "/" + name));
        }
        failing("no such folder", execute, "dump,file=" + folder + "/missing/a.html");
        failing("resume", execute, "resume,event=cpu");
        if (arguments[0].isEmpty()) {
            typed(api);
        }
        // The JVM ends with a profile that is not stopped.
        section("last", execute.run("start,event=cpu,interval=1ms,file=" + folder + "/at-exit.jfr"));
        burn(50_000_000L);
        section("end", "");
    }

    /** The other native methods, and a profile of chosen threads. */
    private static void typed(AsyncProfiler api) throws Exception {
        api.start0("cpu", 1_000_000L, true);
        burn(50_000_000L);
        section("samples", Long.toString(api.getSamples()));
        api.stop0();
        section("otlp", Integer.toString(api.execute1("otlp").length));
        section("bytes", new String(api.execute1("collapsed"), StandardCharsets.UTF_8));

        CountDownLatch chosen = new CountDownLatch(1);
        Thread other = new Thread(() -> {
            try {
                chosen.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            burn(100_000_000L);
        }, "other");
        other.start();
        api.execute0("start,event=cpu,interval=1ms,filter");
        burn(100_000_000L);
        api.filterThread0(other, true);
        chosen.countDown();
        other.join();
        api.filterThread0(null, true);
        hot("chosen", 100_000_000L);
        api.filterThread0(null, false);
        burn(100_000_000L);
        section("filtered", api.execute0("stop,collapsed,total,threads"));
        try {
            api.stop0();
        } catch (IllegalStateException e) {
            section("stop0", e.getMessage());
        }
    }
}
