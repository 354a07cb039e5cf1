import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import one.profiler.AsyncProfiler;

/**
 * Profiles wall time beside 40 threads that wait: first of one chosen thread, then of all.
 *
 * <p>Argument: a folder for results.
 */
public final class ChosenThread {
    private static final int WAITING = 40;
    private static final long MILLIS = 2_000;

    private static long collapsed(String text, String thread, boolean isThread) {
        long sum = 0;
        for (String line : text.split("\n")) {
            if (line.startsWith("[" + thread + " tid=") == isThread && !line.isEmpty()) {
                sum += Long.parseLong(line.substring(line.lastIndexOf(' ') + 1));
            }
        }
        return sum;
    }

    /** Returns the milliseconds in which the calling thread waits. */
    private static long await() throws InterruptedException {
        long begin = System.nanoTime();
        Thread.sleep(MILLIS);
        return (System.nanoTime() - begin) / 1_000_000;
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        for (int i = 0; i < WAITING; i++) {
            Thread thread = new Thread(() -> {
                try {
                    end.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }, "waiting-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        AsyncProfiler api = new AsyncProfiler();
        api.execute0("start,event=wall,interval=4ms,filter,threads");
        api.filterThread0(null, true);
        System.out.println("filtered millis " + await());
        api.stop0();
        String text = api.execute0("collapsed,threads");
        System.out.println("filtered samples " + collapsed(text, "main", true));
        System.out.println("filtered others " + collapsed(text, "main", false));

        Path file = Path.of(arguments[0], "all.jfr");
        api.execute0("start,event=wall,interval=4ms,threads,jfr,file=" + file);
        System.out.println("all millis " + await());
        api.stop0();
        System.out.println("all weight " + collapsed(api.execute0("collapsed,threads"), "main", true));
        long events = 0;
        try (RecordingFile recording = new RecordingFile(file)) {
            while (recording.hasMoreEvents()) {
                RecordedEvent event = recording.readEvent();
                boolean isSample = event.getEventType().getName().equals("jdk.ExecutionSample");
                if (isSample && "main".equals(event.getThread("sampledThread").getJavaName())) {
                    events++;
                }
            }
        }
        System.out.println("all events " + events);
        end.countDown();
    }
}
