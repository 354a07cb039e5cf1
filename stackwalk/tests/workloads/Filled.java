import java.util.ArrayList;
import java.util.List;

/**
 * Keeps 24 MiB of small arrays and one of 8 MiB, in a heap that may become larger, and waits for the end of its input.
 */
public class Filled {
    static final List<byte[]> kept = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 24 * 1024; i++) {
            kept.add(new byte[1008]);
        }
        kept.add(new byte[8 << 20]);
        System.gc();
        System.out.println("ready");
        while (System.in.read() >= 0) {
            // Ends with the test.
        }
        System.out.println(kept.size());
    }
}
