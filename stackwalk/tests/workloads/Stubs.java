import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.Adler32;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;

/**
 * Calls routines that the VM generates: digests, checksums and ciphers, copies, searches, conversions and arithmetic.
 */
public final class Stubs {
    private static volatile long sink;

    private static long digest(MessageDigest digest, byte[] block) {
        digest.update(block);
        return digest.digest()[0];
    }

    // Made once: looking a provider up takes more instructions than all routines together.
    private static final byte[] block = new byte[64];
    private static final MessageDigest[] digests = {
        of("SHA-512"), of("SHA-256"), of("SHA-1"), of("MD5"), of("SHA3-256")};
    private static final Cipher[] ciphers = {of("AES/ECB/NoPadding", 1), of("AES/CBC/NoPadding", 1), of("AES/CTR/NoPadding", 1)};
    private static final Adler32 adler = new Adler32();
    private static final CRC32 crc = new CRC32();
    private static final CRC32C castagnoli = new CRC32C();
    private static final byte[] bytes = new byte[200];
    private static final long[] longs = new long[70];
    private static final Object[] objects = new String[30];
    private static final String text = "a".repeat(90) + "zz5" + "b".repeat(20);
    private static final String wide = "\u20ac".repeat(50) + "zz3" + "\u20ac\u20ad1".repeat(20);
    private static final BigInteger a = BigInteger.ONE.shiftLeft(700).subtract(BigInteger.TEN);
    private static final BigInteger b = BigInteger.ONE.shiftLeft(650).add(BigInteger.TEN);
    private static final BigInteger odd = BigInteger.ONE.shiftLeft(640).add(BigInteger.ONE);
    private static int round;

    private static MessageDigest of(String name) {
        try {
            return MessageDigest.getInstance(name);
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }

    private static Cipher of(String name, int mode) {
        try {
            Cipher cipher = Cipher.getInstance(name);
            cipher.init(mode, new SecretKeySpec(new byte[16], "AES"));
            return cipher;
        } catch (GeneralSecurityException e) {
            throw new AssertionError(e);
        }
    }

    private static void encrypt() {
        for (Cipher cipher : ciphers) {
            try {
                sink += cipher.update(block, 0, block.length, bytes, 0);
            } catch (GeneralSecurityException e) {
                throw new AssertionError(e);
            }
        }
    }

    private static void digests() {
        for (MessageDigest digest : digests) {
            sink += digest(digest, block);
        }
        crc.update(block);
        castagnoli.update(block);
        adler.update(block);
        sink += adler.getValue() + crc.getValue() + castagnoli.getValue();
        block[0]++;
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
        // Text of one byte a character, of two, and of one in text of two; short and long.
        int found = text.indexOf(part) + text.substring(70).indexOf(part) + wide.indexOf(part)
            + wide.substring(44, 58).indexOf(part) + wide.indexOf("\u20ad" + (i & 3));
        return found + Base64.getEncoder().encode(bytes).length
            + new String(bytes, StandardCharsets.ISO_8859_1).hashCode()
            + Arrays.mismatch(bytes, 8, 190, bytes, 7, 189);
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

    private static void mix() {
        int i = round++ & 0xfffff;
        sink += copies(bytes, longs, objects, i);
        sink += text(text, bytes, i);
        sink += conversions(i % 2 == 0 ? Float.NaN : 1e20f, i % 2 == 0 ? 1e300 : Double.NaN);
        sink += mathematics(i + 0.5);
        // One multiplication of 700 bits is as long as everything else.
        if (i % 2 == 0) {
            sink += arithmetic(a, b, odd);
        }
    }

    private static void loop() {
        boolean onlyDigests = Boolean.getBoolean("digests");
        while (true) {
            if (!onlyDigests) {
                mix();
            }
            digests();
            encrypt();
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Until all is compiled: with -Xbatch each call that is hot enough waits for its compilation.
        for (int i = 0; i < 15_000; i++) {
            mix();
            digests();
            encrypt();
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
