import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Uses regular expressions that backtrack recursively, and the string methods that HotSpot replaces by hand-written
 * code: compareTo, equals, indexOf, hashCode, copies, inflation and deflation, in both encodings.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class RegexStrings {
    private static final Pattern WORDS = Pattern.compile("((\\w+)(\\s|,|;)+)*(end|stop)\\b");
    private static final Pattern MAIL = Pattern.compile("([a-z0-9.]+)@([a-z0-9]+\\.)+[a-z]{2,4}");
    private static volatile long sink;

    static void regex(String text) {
        long found = 0;
        for (int i = 0; i < 20; i++) {
            found += WORDS.matcher(text).matches() ? 1 : 0;
            Matcher mails = MAIL.matcher(text);
            while (mails.find()) {
                found += mails.group(1).length();
            }
            found += text.split("[,;]").length + text.replaceAll("(a|e)(.)", "$2$1").length();
        }
        sink += found;
    }

    static void compare(String[] words) {
        String[] copy = words.clone();
        Arrays.sort(copy);
        long found = 0;
        for (int i = 1; i < copy.length; i++) {
            found += copy[i].equals(copy[i - 1]) ? 1 : copy[i].compareTo(words[i]);
            found += copy[i].compareToIgnoreCase(words[i]);
            found += copy[i].regionMatches(0, words[i], 0, 8) ? 1 : 0;
        }
        sink += found;
    }

    static void search(String text, String wide) {
        long found = 0;
        for (int i = 0; i < 500; i++) {
            found += text.indexOf("needle") + text.indexOf('#') + text.lastIndexOf("hay", text.length() - i);
            found += wide.indexOf("\u20acneedle") + wide.indexOf('\u03bb') + (text.contains("stack 9") ? 1 : 0);
        }
        sink += found;
    }

    static void encode(String text, String wide) {
        long found = 0;
        for (int i = 0; i < 200; i++) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            found += new String(bytes, StandardCharsets.ISO_8859_1).hashCode();
            found += new String(wide.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8).hashCode();
            found += new StringBuilder(text).append(wide).append(i).reverse().toString().length();
            found += text.toUpperCase().toLowerCase().trim().length() + String.join(",", text, wide).length();
        }
        sink += found;
    }

    private static String words(Random random, int count, boolean wide) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < count; i++) {
            text.append("hay").append(wide ? "\u03b1" : "a").append(random.nextInt(100)).append(i % 7 == 0 ? ";" : " ");
            text.append("some.one").append(i).append("@example.org, stack ");
        }
        return text.toString();
    }

    public static void main(String[] arguments) {
        Random random = new Random(1);
        String text = words(random, 60, false) + "needle";
        String wide = words(random, 60, true) + "\u20acneedle";
        String matched = "one two, three; four five end";
        String[] keys = new String[2000];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = "common prefix of some length " + (i % 3 == 0 ? "\u03b1" : "a") + random.nextInt(1000);
        }
        String[] names = {"regex", "compare", "search", "encode"};
        long[] spent = new long[names.length];
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long before = start;
        while (before - start < budget) {
            int kind = random.nextInt(names.length);
            switch (kind) {
                case 0: regex(matched); regex(text); break;
                case 1: compare(keys); break;
                case 2: search(text, wide); break;
                default: encode(text, wide); break;
            }
            long after = ThreadCpu.nanos();
            spent[kind] += after - before;
            before = after;
        }
        for (int kind = 0; kind < names.length; kind++) {
            ThreadCpu.truthMethod("RegexStrings." + names[kind], spent[kind]);
        }
        ThreadCpu.truthThread();
    }
}
