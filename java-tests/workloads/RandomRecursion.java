/**
 * The worst case for a profiler that relies on stacks it has seen: mutual recursion of 97 methods to a random depth of
 * 150 to 250 frames, so that hardly two stacks are alike. Below each stack it burns some 20 us of CPU time.
 *
 * <p>Each method calls one of four others, by two random bits; the order is that of the seed. The methods are small
 * enough to be inlined into each other. Prints the number of stacks that it built as {@code work=N}, so that CPU time
 * per stack can be compared between runs.
 *
 * <p>Arguments: seconds of CPU time; seed (1 by default).
 */
public final class RandomRecursion {
    private static final int SHALLOWEST = 150;
    private static final int DEEPEST = 250;
    private static final int BURN_ITERATIONS = 6_000;
    /** Stacks between two looks at the clock. */
    private static final int STACKS_PER_LOOK = 50;

    private static volatile long sink;

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 3);
        long x = mix(ThreadCpu.argument(arguments, 1, 1));
        long start = ThreadCpu.nanos();
        long work = 0;
        while (ThreadCpu.nanos() - start < budget) {
            for (int i = 0; i < STACKS_PER_LOOK; i++) {
                x = mix(x);
                // Frames below main: the recursion and burn.
                int depth = SHALLOWEST + (int) Long.remainderUnsigned(x, DEEPEST - SHALLOWEST + 1);
                x = m0(depth - 3, x);
            }
            work += STACKS_PER_LOOK;
        }
        sink = x;
        ThreadCpu.truth("method=RandomRecursion.burn cpu_ns=" + (ThreadCpu.nanos() - start) + " work=" + work);
        ThreadCpu.truthThread();
    }

    private static long burn(long x) {
        for (int i = 0; i < BURN_ITERATIONS; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    /** A step of SplitMix64. */
    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    // Each line but the first is the same method with another number and other callees.
    static long m0(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m1(d - 1, x) + 1; case 1: return m3(d - 1, x) + 2; case 2: return m7(d - 1, x) + 3; default: return m13(d - 1, x) + 4; } }
    static long m1(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m6(d - 1, x) + 1; case 1: return m14(d - 1, x) + 2; case 2: return m36(d - 1, x) + 3; default: return m66(d - 1, x) + 4; } }
    static long m2(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m11(d - 1, x) + 1; case 1: return m25(d - 1, x) + 2; case 2: return m65(d - 1, x) + 3; default: return m22(d - 1, x) + 4; } }
    static long m3(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m16(d - 1, x) + 1; case 1: return m36(d - 1, x) + 2; case 2: return m94(d - 1, x) + 3; default: return m75(d - 1, x) + 4; } }
    static long m4(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m21(d - 1, x) + 1; case 1: return m47(d - 1, x) + 2; case 2: return m26(d - 1, x) + 3; default: return m31(d - 1, x) + 4; } }
    static long m5(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m26(d - 1, x) + 1; case 1: return m58(d - 1, x) + 2; case 2: return m55(d - 1, x) + 3; default: return m84(d - 1, x) + 4; } }
    static long m6(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m31(d - 1, x) + 1; case 1: return m69(d - 1, x) + 2; case 2: return m84(d - 1, x) + 3; default: return m40(d - 1, x) + 4; } }
    static long m7(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m36(d - 1, x) + 1; case 1: return m80(d - 1, x) + 2; case 2: return m16(d - 1, x) + 3; default: return m93(d - 1, x) + 4; } }
    static long m8(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m41(d - 1, x) + 1; case 1: return m91(d - 1, x) + 2; case 2: return m45(d - 1, x) + 3; default: return m49(d - 1, x) + 4; } }
    static long m9(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m46(d - 1, x) + 1; case 1: return m5(d - 1, x) + 2; case 2: return m74(d - 1, x) + 3; default: return m5(d - 1, x) + 4; } }
    static long m10(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m51(d - 1, x) + 1; case 1: return m16(d - 1, x) + 2; case 2: return m6(d - 1, x) + 3; default: return m58(d - 1, x) + 4; } }
    static long m11(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m56(d - 1, x) + 1; case 1: return m27(d - 1, x) + 2; case 2: return m35(d - 1, x) + 3; default: return m14(d - 1, x) + 4; } }
    static long m12(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m61(d - 1, x) + 1; case 1: return m38(d - 1, x) + 2; case 2: return m64(d - 1, x) + 3; default: return m67(d - 1, x) + 4; } }
    static long m13(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m66(d - 1, x) + 1; case 1: return m49(d - 1, x) + 2; case 2: return m93(d - 1, x) + 3; default: return m23(d - 1, x) + 4; } }
    static long m14(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m71(d - 1, x) + 1; case 1: return m60(d - 1, x) + 2; case 2: return m25(d - 1, x) + 3; default: return m76(d - 1, x) + 4; } }
    static long m15(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m76(d - 1, x) + 1; case 1: return m71(d - 1, x) + 2; case 2: return m54(d - 1, x) + 3; default: return m32(d - 1, x) + 4; } }
    static long m16(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m81(d - 1, x) + 1; case 1: return m82(d - 1, x) + 2; case 2: return m83(d - 1, x) + 3; default: return m85(d - 1, x) + 4; } }
    static long m17(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m86(d - 1, x) + 1; case 1: return m93(d - 1, x) + 2; case 2: return m15(d - 1, x) + 3; default: return m41(d - 1, x) + 4; } }
    static long m18(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m91(d - 1, x) + 1; case 1: return m7(d - 1, x) + 2; case 2: return m44(d - 1, x) + 3; default: return m94(d - 1, x) + 4; } }
    static long m19(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m96(d - 1, x) + 1; case 1: return m18(d - 1, x) + 2; case 2: return m73(d - 1, x) + 3; default: return m50(d - 1, x) + 4; } }
    static long m20(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m4(d - 1, x) + 1; case 1: return m29(d - 1, x) + 2; case 2: return m5(d - 1, x) + 3; default: return m6(d - 1, x) + 4; } }
    static long m21(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m9(d - 1, x) + 1; case 1: return m40(d - 1, x) + 2; case 2: return m34(d - 1, x) + 3; default: return m59(d - 1, x) + 4; } }
    static long m22(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m14(d - 1, x) + 1; case 1: return m51(d - 1, x) + 2; case 2: return m63(d - 1, x) + 3; default: return m15(d - 1, x) + 4; } }
    static long m23(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m19(d - 1, x) + 1; case 1: return m62(d - 1, x) + 2; case 2: return m92(d - 1, x) + 3; default: return m68(d - 1, x) + 4; } }
    static long m24(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m24(d - 1, x) + 1; case 1: return m73(d - 1, x) + 2; case 2: return m24(d - 1, x) + 3; default: return m24(d - 1, x) + 4; } }
    static long m25(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m29(d - 1, x) + 1; case 1: return m84(d - 1, x) + 2; case 2: return m53(d - 1, x) + 3; default: return m77(d - 1, x) + 4; } }
    static long m26(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m34(d - 1, x) + 1; case 1: return m95(d - 1, x) + 2; case 2: return m82(d - 1, x) + 3; default: return m33(d - 1, x) + 4; } }
    static long m27(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m39(d - 1, x) + 1; case 1: return m9(d - 1, x) + 2; case 2: return m14(d - 1, x) + 3; default: return m86(d - 1, x) + 4; } }
    static long m28(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m44(d - 1, x) + 1; case 1: return m20(d - 1, x) + 2; case 2: return m43(d - 1, x) + 3; default: return m42(d - 1, x) + 4; } }
    static long m29(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m49(d - 1, x) + 1; case 1: return m31(d - 1, x) + 2; case 2: return m72(d - 1, x) + 3; default: return m95(d - 1, x) + 4; } }
    static long m30(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m54(d - 1, x) + 1; case 1: return m42(d - 1, x) + 2; case 2: return m4(d - 1, x) + 3; default: return m51(d - 1, x) + 4; } }
    static long m31(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m59(d - 1, x) + 1; case 1: return m53(d - 1, x) + 2; case 2: return m33(d - 1, x) + 3; default: return m7(d - 1, x) + 4; } }
    static long m32(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m64(d - 1, x) + 1; case 1: return m64(d - 1, x) + 2; case 2: return m62(d - 1, x) + 3; default: return m60(d - 1, x) + 4; } }
    static long m33(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m69(d - 1, x) + 1; case 1: return m75(d - 1, x) + 2; case 2: return m91(d - 1, x) + 3; default: return m16(d - 1, x) + 4; } }
    static long m34(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m74(d - 1, x) + 1; case 1: return m86(d - 1, x) + 2; case 2: return m23(d - 1, x) + 3; default: return m69(d - 1, x) + 4; } }
    static long m35(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m79(d - 1, x) + 1; case 1: return m0(d - 1, x) + 2; case 2: return m52(d - 1, x) + 3; default: return m25(d - 1, x) + 4; } }
    static long m36(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m84(d - 1, x) + 1; case 1: return m11(d - 1, x) + 2; case 2: return m81(d - 1, x) + 3; default: return m78(d - 1, x) + 4; } }
    static long m37(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m89(d - 1, x) + 1; case 1: return m22(d - 1, x) + 2; case 2: return m13(d - 1, x) + 3; default: return m34(d - 1, x) + 4; } }
    static long m38(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m94(d - 1, x) + 1; case 1: return m33(d - 1, x) + 2; case 2: return m42(d - 1, x) + 3; default: return m87(d - 1, x) + 4; } }
    static long m39(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m2(d - 1, x) + 1; case 1: return m44(d - 1, x) + 2; case 2: return m71(d - 1, x) + 3; default: return m43(d - 1, x) + 4; } }
    static long m40(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m7(d - 1, x) + 1; case 1: return m55(d - 1, x) + 2; case 2: return m3(d - 1, x) + 3; default: return m96(d - 1, x) + 4; } }
    static long m41(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m12(d - 1, x) + 1; case 1: return m66(d - 1, x) + 2; case 2: return m32(d - 1, x) + 3; default: return m52(d - 1, x) + 4; } }
    static long m42(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m17(d - 1, x) + 1; case 1: return m77(d - 1, x) + 2; case 2: return m61(d - 1, x) + 3; default: return m8(d - 1, x) + 4; } }
    static long m43(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m22(d - 1, x) + 1; case 1: return m88(d - 1, x) + 2; case 2: return m90(d - 1, x) + 3; default: return m61(d - 1, x) + 4; } }
    static long m44(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m27(d - 1, x) + 1; case 1: return m2(d - 1, x) + 2; case 2: return m22(d - 1, x) + 3; default: return m17(d - 1, x) + 4; } }
    static long m45(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m32(d - 1, x) + 1; case 1: return m13(d - 1, x) + 2; case 2: return m51(d - 1, x) + 3; default: return m70(d - 1, x) + 4; } }
    static long m46(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m37(d - 1, x) + 1; case 1: return m24(d - 1, x) + 2; case 2: return m80(d - 1, x) + 3; default: return m26(d - 1, x) + 4; } }
    static long m47(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m42(d - 1, x) + 1; case 1: return m35(d - 1, x) + 2; case 2: return m12(d - 1, x) + 3; default: return m79(d - 1, x) + 4; } }
    static long m48(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m47(d - 1, x) + 1; case 1: return m46(d - 1, x) + 2; case 2: return m41(d - 1, x) + 3; default: return m35(d - 1, x) + 4; } }
    static long m49(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m52(d - 1, x) + 1; case 1: return m57(d - 1, x) + 2; case 2: return m70(d - 1, x) + 3; default: return m88(d - 1, x) + 4; } }
    static long m50(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m57(d - 1, x) + 1; case 1: return m68(d - 1, x) + 2; case 2: return m2(d - 1, x) + 3; default: return m44(d - 1, x) + 4; } }
    static long m51(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m62(d - 1, x) + 1; case 1: return m79(d - 1, x) + 2; case 2: return m31(d - 1, x) + 3; default: return m0(d - 1, x) + 4; } }
    static long m52(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m67(d - 1, x) + 1; case 1: return m90(d - 1, x) + 2; case 2: return m60(d - 1, x) + 3; default: return m53(d - 1, x) + 4; } }
    static long m53(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m72(d - 1, x) + 1; case 1: return m4(d - 1, x) + 2; case 2: return m89(d - 1, x) + 3; default: return m9(d - 1, x) + 4; } }
    static long m54(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m77(d - 1, x) + 1; case 1: return m15(d - 1, x) + 2; case 2: return m21(d - 1, x) + 3; default: return m62(d - 1, x) + 4; } }
    static long m55(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m82(d - 1, x) + 1; case 1: return m26(d - 1, x) + 2; case 2: return m50(d - 1, x) + 3; default: return m18(d - 1, x) + 4; } }
    static long m56(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m87(d - 1, x) + 1; case 1: return m37(d - 1, x) + 2; case 2: return m79(d - 1, x) + 3; default: return m71(d - 1, x) + 4; } }
    static long m57(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m92(d - 1, x) + 1; case 1: return m48(d - 1, x) + 2; case 2: return m11(d - 1, x) + 3; default: return m27(d - 1, x) + 4; } }
    static long m58(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m0(d - 1, x) + 1; case 1: return m59(d - 1, x) + 2; case 2: return m40(d - 1, x) + 3; default: return m80(d - 1, x) + 4; } }
    static long m59(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m5(d - 1, x) + 1; case 1: return m70(d - 1, x) + 2; case 2: return m69(d - 1, x) + 3; default: return m36(d - 1, x) + 4; } }
    static long m60(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m10(d - 1, x) + 1; case 1: return m81(d - 1, x) + 2; case 2: return m1(d - 1, x) + 3; default: return m89(d - 1, x) + 4; } }
    static long m61(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m15(d - 1, x) + 1; case 1: return m92(d - 1, x) + 2; case 2: return m30(d - 1, x) + 3; default: return m45(d - 1, x) + 4; } }
    static long m62(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m20(d - 1, x) + 1; case 1: return m6(d - 1, x) + 2; case 2: return m59(d - 1, x) + 3; default: return m1(d - 1, x) + 4; } }
    static long m63(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m25(d - 1, x) + 1; case 1: return m17(d - 1, x) + 2; case 2: return m88(d - 1, x) + 3; default: return m54(d - 1, x) + 4; } }
    static long m64(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m30(d - 1, x) + 1; case 1: return m28(d - 1, x) + 2; case 2: return m20(d - 1, x) + 3; default: return m10(d - 1, x) + 4; } }
    static long m65(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m35(d - 1, x) + 1; case 1: return m39(d - 1, x) + 2; case 2: return m49(d - 1, x) + 3; default: return m63(d - 1, x) + 4; } }
    static long m66(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m40(d - 1, x) + 1; case 1: return m50(d - 1, x) + 2; case 2: return m78(d - 1, x) + 3; default: return m19(d - 1, x) + 4; } }
    static long m67(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m45(d - 1, x) + 1; case 1: return m61(d - 1, x) + 2; case 2: return m10(d - 1, x) + 3; default: return m72(d - 1, x) + 4; } }
    static long m68(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m50(d - 1, x) + 1; case 1: return m72(d - 1, x) + 2; case 2: return m39(d - 1, x) + 3; default: return m28(d - 1, x) + 4; } }
    static long m69(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m55(d - 1, x) + 1; case 1: return m83(d - 1, x) + 2; case 2: return m68(d - 1, x) + 3; default: return m81(d - 1, x) + 4; } }
    static long m70(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m60(d - 1, x) + 1; case 1: return m94(d - 1, x) + 2; case 2: return m0(d - 1, x) + 3; default: return m37(d - 1, x) + 4; } }
    static long m71(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m65(d - 1, x) + 1; case 1: return m8(d - 1, x) + 2; case 2: return m29(d - 1, x) + 3; default: return m90(d - 1, x) + 4; } }
    static long m72(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m70(d - 1, x) + 1; case 1: return m19(d - 1, x) + 2; case 2: return m58(d - 1, x) + 3; default: return m46(d - 1, x) + 4; } }
    static long m73(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m75(d - 1, x) + 1; case 1: return m30(d - 1, x) + 2; case 2: return m87(d - 1, x) + 3; default: return m2(d - 1, x) + 4; } }
    static long m74(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m80(d - 1, x) + 1; case 1: return m41(d - 1, x) + 2; case 2: return m19(d - 1, x) + 3; default: return m55(d - 1, x) + 4; } }
    static long m75(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m85(d - 1, x) + 1; case 1: return m52(d - 1, x) + 2; case 2: return m48(d - 1, x) + 3; default: return m11(d - 1, x) + 4; } }
    static long m76(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m90(d - 1, x) + 1; case 1: return m63(d - 1, x) + 2; case 2: return m77(d - 1, x) + 3; default: return m64(d - 1, x) + 4; } }
    static long m77(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m95(d - 1, x) + 1; case 1: return m74(d - 1, x) + 2; case 2: return m9(d - 1, x) + 3; default: return m20(d - 1, x) + 4; } }
    static long m78(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m3(d - 1, x) + 1; case 1: return m85(d - 1, x) + 2; case 2: return m38(d - 1, x) + 3; default: return m73(d - 1, x) + 4; } }
    static long m79(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m8(d - 1, x) + 1; case 1: return m96(d - 1, x) + 2; case 2: return m67(d - 1, x) + 3; default: return m29(d - 1, x) + 4; } }
    static long m80(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m13(d - 1, x) + 1; case 1: return m10(d - 1, x) + 2; case 2: return m96(d - 1, x) + 3; default: return m82(d - 1, x) + 4; } }
    static long m81(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m18(d - 1, x) + 1; case 1: return m21(d - 1, x) + 2; case 2: return m28(d - 1, x) + 3; default: return m38(d - 1, x) + 4; } }
    static long m82(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m23(d - 1, x) + 1; case 1: return m32(d - 1, x) + 2; case 2: return m57(d - 1, x) + 3; default: return m91(d - 1, x) + 4; } }
    static long m83(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m28(d - 1, x) + 1; case 1: return m43(d - 1, x) + 2; case 2: return m86(d - 1, x) + 3; default: return m47(d - 1, x) + 4; } }
    static long m84(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m33(d - 1, x) + 1; case 1: return m54(d - 1, x) + 2; case 2: return m18(d - 1, x) + 3; default: return m3(d - 1, x) + 4; } }
    static long m85(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m38(d - 1, x) + 1; case 1: return m65(d - 1, x) + 2; case 2: return m47(d - 1, x) + 3; default: return m56(d - 1, x) + 4; } }
    static long m86(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m43(d - 1, x) + 1; case 1: return m76(d - 1, x) + 2; case 2: return m76(d - 1, x) + 3; default: return m12(d - 1, x) + 4; } }
    static long m87(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m48(d - 1, x) + 1; case 1: return m87(d - 1, x) + 2; case 2: return m8(d - 1, x) + 3; default: return m65(d - 1, x) + 4; } }
    static long m88(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m53(d - 1, x) + 1; case 1: return m1(d - 1, x) + 2; case 2: return m37(d - 1, x) + 3; default: return m21(d - 1, x) + 4; } }
    static long m89(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m58(d - 1, x) + 1; case 1: return m12(d - 1, x) + 2; case 2: return m66(d - 1, x) + 3; default: return m74(d - 1, x) + 4; } }
    static long m90(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m63(d - 1, x) + 1; case 1: return m23(d - 1, x) + 2; case 2: return m95(d - 1, x) + 3; default: return m30(d - 1, x) + 4; } }
    static long m91(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m68(d - 1, x) + 1; case 1: return m34(d - 1, x) + 2; case 2: return m27(d - 1, x) + 3; default: return m83(d - 1, x) + 4; } }
    static long m92(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m73(d - 1, x) + 1; case 1: return m45(d - 1, x) + 2; case 2: return m56(d - 1, x) + 3; default: return m39(d - 1, x) + 4; } }
    static long m93(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m78(d - 1, x) + 1; case 1: return m56(d - 1, x) + 2; case 2: return m85(d - 1, x) + 3; default: return m92(d - 1, x) + 4; } }
    static long m94(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m83(d - 1, x) + 1; case 1: return m67(d - 1, x) + 2; case 2: return m17(d - 1, x) + 3; default: return m48(d - 1, x) + 4; } }
    static long m95(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m88(d - 1, x) + 1; case 1: return m78(d - 1, x) + 2; case 2: return m46(d - 1, x) + 3; default: return m4(d - 1, x) + 4; } }
    static long m96(int d, long x) { if (d == 0) return burn(x); x = mix(x); switch ((int) (x >>> 62)) { case 0: return m93(d - 1, x) + 1; case 1: return m89(d - 1, x) + 2; case 2: return m75(d - 1, x) + 3; default: return m57(d - 1, x) + 4; } }
}
