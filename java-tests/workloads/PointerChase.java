/**
 * A loop that waits for memory, and a cheap method inlined right behind the load that waits. A profile must charge the
 * wait to the method with the load, not to the cheap one.
 *
 * <p>Each step loads the address of the next one from a table of 64 MiB in an order that no prefetcher follows. The
 * caches hold a small part of the table, so a load takes a hundred cycles and more, as the printed {@code ns_per_step}
 * shows. {@code cheap} shifts the loaded number: one instruction of one cycle, for which x86 has no form that loads as
 * well. The next load needs its result, so nothing overlaps, and its share of the loop is 1 cycle in more than 100.
 *
 * <p>Needs {@code -Xbatch}. Arguments: seconds of CPU time.
 */
public final class PointerChase {
    /** Entries of the table, a power of two. */
    private static final int ENTRIES = 1 << 24;
    private static final int[] NEXT = new int[ENTRIES];
    private static volatile int sink;

    static int cheap(int shifted) {
        return shifted >>> 8;
    }

    // Both numbers are used twice: where the shift alone uses the loaded number, the debug information of C2 (JDK 11 to
    // 25) describes the load as a part of the cheap method, and no reader can know better.
    static int chase(int at, int steps) {
        int[] next = NEXT;
        int sum = 0;
        for (int i = 0; i < steps; i++) {
            int loaded = next[at];
            at = cheap(loaded);
            sum += loaded ^ at;
        }
        sink = sum;
        return at;
    }

    /** Follows the table for this CPU time; reports what a step took. */
    static void measured(long budget) {
        long start = ThreadCpu.nanos();
        long now = start;
        long steps = 0;
        int at = 0;
        while (now - start < budget) {
            at = chase(at, 100_000);
            steps += 100_000;
            now = ThreadCpu.nanos();
        }
        long nanos = now - start;
        ThreadCpu.truth("method=PointerChase.measured cpu_ns=" + nanos + " ns_per_step=" + nanos / steps);
    }

    public static void main(String[] arguments) {
        // A linear congruential generator modulo a power of two visits every entry before it repeats (Hull and Dobell).
        for (int i = 0; i < ENTRIES; i++) {
            NEXT[i] = ((i * 0x5bd1e995 + 0x3c6ef35f) & (ENTRIES - 1)) << 8;
        }
        // Enough calls and steps for C2, which with -Xbatch has compiled the loop when this ends: an interpreted call
        // of the cheap method is not cheap.
        int at = 0;
        for (int i = 0; i < 2_000; i++) {
            at = chase(at, 100);
        }
        measured(ThreadCpu.budget(arguments, 3));
        ThreadCpu.truthThread();
    }
}
