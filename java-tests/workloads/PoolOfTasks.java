import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.zip.CRC32;

/**
 * A pool of four threads runs tasks of four kinds; the amount of work is fixed.
 *
 * <p>Arguments: number of rounds, each of which has one task of every kind for each thread.
 */
public final class PoolOfTasks {
    private static final int THREADS = 4;

    static long sorted(int seed) {
        long x = seed;
        long[] numbers = new long[40_000];
        for (int i = 0; i < numbers.length; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            numbers[i] = x;
        }
        Arrays.sort(numbers);
        return numbers[seed % numbers.length];
    }

    static long counted(int seed) {
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < 20_000; i++) {
            counts.merge("word" + (i * 31 + seed) % 997, 1, Integer::sum);
        }
        return counts.size();
    }

    static long matched(int seed) {
        Pattern pattern = Pattern.compile("([a-z]+)-(\\d+)-[a-f0-9]{2,4}");
        long matches = 0;
        for (int i = 0; i < 8_000; i++) {
            matches += pattern.matcher("task-" + (i + seed) + "-" + Integer.toHexString(i)).matches() ? 1 : 0;
        }
        return matches;
    }

    static long summed(int seed) {
        byte[] bytes = new byte[64 << 10];
        Arrays.fill(bytes, (byte) seed);
        CRC32 sum = new CRC32();
        for (int i = 0; i < 100; i++) {
            sum.update(bytes);
        }
        return sum.getValue();
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            List<Callable<Long>> tasks = new ArrayList<>();
            for (int thread = 0; thread < THREADS; thread++) {
                int seed = round * THREADS + thread;
                tasks.addAll(List.of(() -> sorted(seed), () -> counted(seed), () -> matched(seed), () -> summed(seed)));
            }
            for (Future<Long> result : pool.invokeAll(tasks)) {
                sum += result.get();
            }
        }
        pool.shutdown();
        System.out.println(sum);
    }
}
