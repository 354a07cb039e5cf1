import java.io.File;

/**
 * Five stages do equal work, and one can be made slower, so that a comparison of two profiles by self time finds it.
 *
 * <p>Arguments: seconds of CPU time; factor of the work of {@code stageC}, such as 1.1 (1 by default); path of a file
 * that must exist before it ends.
 */
public final class PlantedRegression {
    private static volatile long sink;

    static long stageA(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x + 1;
    }

    static long stageB(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x + 2;
    }

    static long stageC(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x + 3;
    }

    static long stageD(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x + 4;
    }

    static long stageE(long iterations) {
        long x = sink;
        for (long i = 0; i < iterations; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x + 5;
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        double factor = arguments.length > 1 ? Double.parseDouble(arguments[1]) : 1;
        long ofStageC = Math.round(200_000 * factor);
        ThreadCpu.truth("pid=" + ProcessHandle.current().pid());
        System.out.flush();
        long start = ThreadCpu.nanos();
        File endFile = arguments.length > 2 ? new File(arguments[2]) : null;
        while (ThreadCpu.nanos() - start < budget || (endFile != null && !endFile.exists())) {
            for (int round = 0; round < 20; round++) {
                sink = stageA(200_000) + stageB(200_000) + stageC(ofStageC) + stageD(200_000) + stageE(200_000);
            }
            ThreadCpu.truthMethod("PlantedRegression.main", ThreadCpu.nanos() - start);
        }
        ThreadCpu.truthThread();
    }
}
