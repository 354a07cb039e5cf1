import java.util.Random;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/**
 * Burns in intrinsics, stubs and JNI: array copies, CRC32, zlib, trigonometry, string operations and clock reads, each
 * in a method whose CPU time is measured. The order is random, so that no call is in phase with the scheduler's ticks.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class NativeHeavy {
    private static volatile long sink;

    static void copy(byte[] from, byte[] to) {
        for (int i = 0; i < 40_000; i++) {
            System.arraycopy(from, i & 63, to, 0, from.length - 64);
        }
        sink += to[0];
    }

    static void crc(byte[] data) {
        CRC32 crc = new CRC32();
        for (int i = 0; i < 20_000; i++) {
            crc.update(data);
        }
        sink += crc.getValue();
    }

    static void deflate(byte[] data, byte[] out) {
        Deflater deflater = new Deflater();
        try {
            for (int i = 0; i < 10; i++) {
                deflater.reset();
                deflater.setInput(data);
                deflater.finish();
                sink += deflater.deflate(out);
            }
        } finally {
            deflater.end();
        }
    }

    static void math() {
        double x = sink;
        for (int i = 0; i < 200_000; i++) {
            x = Math.sin(x) + Math.exp(Math.cos(x)) + Math.log(i + 1) + Math.pow(1.0001, i & 15);
        }
        sink += (long) x;
    }

    static void strings(String text) {
        int found = 0;
        for (int i = 0; i < 2000; i++) {
            found += text.indexOf("needle") + text.toUpperCase().compareTo(text) + text.substring(i & 31).hashCode();
        }
        sink += found;
    }

    static void clock() {
        long x = 0;
        for (int i = 0; i < 300_000; i++) {
            x += System.nanoTime();
        }
        sink += x;
    }

    public static void main(String[] arguments) {
        byte[] data = new byte[16 * 1024];
        Random random = new Random(1);
        random.nextBytes(data);
        for (int i = 0; i < data.length; i += 3) {
            data[i] = 'a';
        }
        byte[] out = new byte[32 * 1024];
        StringBuilder builder = new StringBuilder();
        for (int i = 0; i < 200; i++) {
            builder.append("haystack ").append(i);
        }
        String text = builder.append("needle").toString();

        long budget = ThreadCpu.budget(arguments, 4);
        String[] names = {"copy", "crc", "deflate", "math", "strings", "clock"};
        long[] spent = new long[names.length];
        long start = ThreadCpu.nanos();
        long before = start;
        while (before - start < budget) {
            int kind = random.nextInt(names.length);
            switch (kind) {
                case 0: copy(data, out); break;
                case 1: crc(data); break;
                case 2: deflate(data, out); break;
                case 3: math(); break;
                case 4: strings(text); break;
                default: clock(); break;
            }
            long after = ThreadCpu.nanos();
            spent[kind] += after - before;
            before = after;
        }
        for (int kind = 0; kind < names.length; kind++) {
            ThreadCpu.truthMethod("NativeHeavy." + names[kind], spent[kind]);
        }
        ThreadCpu.truthThread();
    }
}
