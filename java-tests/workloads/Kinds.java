import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/**
 * Burns CPU time of different kinds in turn: computation, system calls, page faults, and garbage that other threads
 * collect.
 *
 * <p>At the end it prints {@code ready} and waits until its standard input ends, so that the clocks of all its threads
 * can be read. Arguments: seconds of CPU time of the main thread.
 */
public final class Kinds {
    private static final int PAGE = 4096;
    private static final int MAPPED = 2 << 20;
    private static volatile long sink;
    private static volatile Object garbage;

    private Kinds() {}

    static void compute() {
        long x = sink;
        for (int i = 0; i < 2_000_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        sink = x;
    }

    static void system(InputStream zeros, byte[] buffer) throws IOException {
        for (int i = 0; i < 1_000; i++) {
            sink += zeros.read(buffer);
        }
    }

    static void faults(FileChannel file) throws IOException {
        MappedByteBuffer fresh = file.map(FileChannel.MapMode.PRIVATE, 0, MAPPED);
        for (int at = 0; at < MAPPED; at += PAGE) {
            fresh.put(at, (byte) 1);
        }
    }

    static void allocate() {
        Object[] list = null;
        for (int i = 0; i < 50_000; i++) {
            list = new Object[] {new byte[200], i % 100 == 0 ? null : list};
        }
        garbage = list;
    }

    public static void main(String[] arguments) throws IOException {
        long budget = ThreadCpu.budget(arguments, 10);
        long[] burnt = new long[4];
        String[] names = {"compute", "system", "faults", "allocate"};
        Path path = Files.createTempFile("kinds", null);
        byte[] buffer = new byte[8192];
        try (InputStream zeros = Files.newInputStream(Paths.get("/dev/zero"));
                RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            Files.delete(path);
            file.setLength(MAPPED);
            long start = ThreadCpu.nanos();
            long before = start;
            for (int turn = 0; before - start < budget; turn = (turn + 1) % names.length) {
                if (turn == 0) {
                    compute();
                } else if (turn == 1) {
                    system(zeros, buffer);
                } else if (turn == 2) {
                    faults(file.getChannel());
                } else {
                    allocate();
                }
                long now = ThreadCpu.nanos();
                burnt[turn] += now - before;
                before = now;
            }
        }
        for (int i = 0; i < names.length; i++) {
            ThreadCpu.truthMethod("Kinds." + names[i], burnt[i]);
        }
        System.out.println("ready");
        System.out.flush();
        System.in.read();
        ThreadCpu.truthThread();
    }
}
