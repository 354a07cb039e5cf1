import java.nio.charset.StandardCharsets;

/**
 * Closes all descriptors from 3 on but those of the JDK's own files, opens a file of its own as often as its argument
 * says, and goes on. Prints how many of the file's descriptors were opened, and how many are intact at the end.
 *
 * <p>Arguments: seconds of CPU time; the native library; path of the file; how often it is opened.
 */
public final class ClosesDescriptors {
    private static native int closeAndOpen(byte[] path, int length, int count);

    private static native int intact(byte[] path, int length);

    private static long burnt;

    private static void burn(long nanos) {
        for (long end = burnt + nanos; burnt < end; burnt += 100_000_000) {
            Burner.burn(100_000_000);
            ThreadCpu.truthMethod("Burner.burn", burnt);
        }
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 4);
        System.load(arguments[1]);
        byte[] path = arguments[2].getBytes(StandardCharsets.UTF_8);
        int count = Integer.parseInt(arguments[3]);
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        burn(budget / 4);
        System.out.println("opened " + closeAndOpen(path, path.length, count));
        burn(budget - burnt);
        System.out.println("intact " + intact(path, path.length));
    }
}
