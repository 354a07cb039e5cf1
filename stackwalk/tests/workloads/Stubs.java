import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;

/**
 * Calls routines that the VM generates: digests and checksums, copies, searches, conversions and arithmetic.
 */
public final class Stubs {
    private static volatile long sink;

    private static long digest(MessageDigest digest, byte[] block) {
        digest.update(block);
        return digest.digest()[0];
    }

    private static void digests(long rounds) throws Exception {
        byte[] block = new byte[128];
        MessageDigest[] digests = {
            MessageDigest.getInstance("SHA-512"), MessageDigest.getInstance("SHA-256"),
            MessageDigest.getInstance("SHA-1"), MessageDigest.getInstance("MD5")};
        CRC32 crc = new CRC32();
        CRC32C castagnoli = new CRC32C();
        for (long i = 0; i < rounds; i++) {
            for (MessageDigest digest : digests) {
                sink += digest(digest, block);
            }
            crc.update(block);
            castagnoli.update(block);
            sink += crc.getValue() + castagnoli.getValue();
            block[0]++;
        }
    }

    private static long copies(byte[] bytes, long[] longs, Object[] objects, int i) {
        System.arraycopy(bytes, 0, bytes, 1, bytes.length - 1 - (i & 7));
        System.arraycopy(longs, 1, longs, 0, longs.length - 1 - (i & 7));
        Object[] copy = Arrays.copyOf(objects, objects.length - (i & 3), String[].class);
        Arrays.fill(bytes, 0, 40 + (i & 15), (byte) i);
        return copy.length + bytes[3] + longs[2];
    }

    private static long text(String text, byte[] bytes, int i) {
        String part = "zz" + (i & 7);
        return text.indexOf(part) + Base64.getEncoder().encode(bytes).length
            + new String(bytes, StandardCharsets.ISO_8859_1).hashCode();
    }

    private static long conversions(float single, double wide) {
        return (int) single + (long) single + (int) wide + (long) wide;
    }

    private static long mathematics(double x) {
        return (long) (Math.sin(x) * 10 + Math.cos(x) * 10 + Math.tan(x) + Math.pow(x, 0.3) + Math.exp(x % 3)
            + Math.log(x + 2) + Math.log10(x + 3));
    }

    private static long arithmetic(BigInteger a, BigInteger b, BigInteger odd) {
        return a.multiply(b).bitLength() + a.multiply(a).bitLength() + a.modPow(BigInteger.TEN, odd).bitLength();
    }

    private static void mix(long rounds) {
        byte[] bytes = new byte[200];
        long[] longs = new long[70];
        Object[] objects = new String[30];
        String text = "a".repeat(90) + "zz5" + "b".repeat(20);
        BigInteger a = BigInteger.ONE.shiftLeft(700).subtract(BigInteger.TEN);
        BigInteger b = BigInteger.ONE.shiftLeft(650).add(BigInteger.TEN);
        BigInteger odd = BigInteger.ONE.shiftLeft(640).add(BigInteger.ONE);
        for (int i = 0; i < rounds; i++) {
            sink += copies(bytes, longs, objects, i);
            sink += text(text, bytes, i);
            sink += conversions(i % 2 == 0 ? Float.NaN : 1e20f, i % 2 == 0 ? 1e300 : Double.NaN);
            sink += mathematics(i + 0.5);
            sink += arithmetic(a, b, odd);
        }
    }

    private static void loop() {
        try {
            while (true) {
                digests(1);
                mix(1);
            }
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Until all is compiled: with -Xbatch each call that is hot enough waits for its compilation.
        for (int i = 0; i < 30; i++) {
            digests(500);
            mix(500);
        }
        Thread thread = new Thread(Stubs::loop, "busy-stubs");
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            // Ends when the test closes the pipe.
        }
    }
}
