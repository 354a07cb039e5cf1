import java.io.File;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;

/**
 * Calls two routines that the VM generates: the digest of blocks by SHA-512, which uses the frame pointer for data, and
 * the copy by which a StringBuilder closes the gap that a deletion leaves. Prints its process id, and the CPU time of
 * both every 100 ms.
 *
 * <p>Arguments: seconds of CPU time; path of a file that must exist before it ends.
 */
public final class Routines {
    private static volatile long sink;

    private Routines() {}

    static void digest(MessageDigest sha512, byte[] data) {
        for (int i = 0; i < 20; i++) {
            sha512.update(data);
        }
        sink += sha512.digest()[0];
    }

    static void delete(StringBuilder text) {
        for (int i = 0; i < 2_000; i++) {
            text.delete(0, 8).append("12345678");
        }
        sink += text.length();
    }

    public static void main(String[] arguments) throws GeneralSecurityException {
        MessageDigest sha512 = MessageDigest.getInstance("SHA-512");
        byte[] data = new byte[64 * 1024];
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8_000; i++) {
            text.append("12345678");
        }
        long budget = ThreadCpu.budget(arguments, 4);
        File endFile = arguments.length > 1 ? new File(arguments[1]) : null;
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        long[] spent = new long[2];
        long told = 0;
        long now = ThreadCpu.nanos();
        while (spent[0] + spent[1] < budget || (endFile != null && !endFile.exists())) {
            for (int kind = 0; kind < spent.length; kind++) {
                if (kind == 0) {
                    digest(sha512, data);
                } else {
                    delete(text);
                }
                long after = ThreadCpu.nanos();
                spent[kind] += after - now;
                now = after;
            }
            if (now - told > 100_000_000) {
                told = now;
                ThreadCpu.truthMethod("Routines.digest", spent[0]);
                ThreadCpu.truthMethod("Routines.delete", spent[1]);
            }
        }
    }
}
