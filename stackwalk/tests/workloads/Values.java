/**
 * Calls with value objects as arguments and results, between interpreted and compiled code; a preview of JDK 28, so
 * compiled by that JDK.
 *
 * <p>The methods whose names begin with "interpreted" are to be excluded from compilation, and none is to be inlined. A
 * thread whose name begins with "virtual" sleeps deep in its stack.
 */
public class Values {
    static value class Pair {
        byte a, b;

        Pair(byte a, byte b) {
            this.a = a;
            this.b = b;
        }
    }

    static value class Line {
        Pair pair;
        short s;

        Line(Pair pair, short s) {
            this.pair = pair;
            this.s = s;
        }

        int sum(Line other, Line third) {
            return s + other.s + third.pair.a;
        }
    }

    static class Holder {
        final Line x, y;

        Holder(Line x, Line y) {
            this.x = x;
            this.y = y;
            super();
            count += x.s;
        }
    }

    static volatile long sink;
    static long count;

    static Line made(int i) {
        return new Line(new Pair((byte) i, (byte) (i >> 3)), (short) i);
    }

    /** The interpreter enters compiled code, whose fields of arguments need more stack than the references. */
    static int interpretedEnters(Line x, Line y, int i) {
        Holder holder = new Holder(x, y);
        return taken(holder.x, holder.y, x, y, i) + x.sum(y, x);
    }

    static int taken(Line a, Line b, Line c, Line d, int i) {
        return i == 0 ? a.s : deeper(d, c, b, a, i) + a.s + b.s + c.pair.a + d.pair.b;
    }

    static int deeper(Line a, Line b, Line c, Line d, int i) {
        int sum = 0;
        for (int k = 0; k < 5; k++) {
            sum = sum * 31 + a.s + b.pair.a + c.pair.b + d.s;
        }
        return sum + i;
    }

    /** Compiled code returns the fields of an object to the interpreter, which allocates it. */
    static int interpretedReceives(int i) {
        Line line = made(i);
        return line.s + line.pair.a;
    }

    /** Compiled code passes fields to a method that is interpreted. */
    static int passes(int i) {
        return interpretedTakes(made(i), made(i + 1), i) + i;
    }

    static int interpretedTakes(Line x, Line y, int i) {
        return x.s + y.pair.b + i;
    }

    static int slept(int depth, Line a, Line b, Line c, Line d) throws InterruptedException {
        if (depth == 0) {
            Thread.sleep(1);
            int sum = 0;
            for (int i = 0; i < 2000; i++) {
                sum = sum * 31 + a.s + b.pair.a + c.pair.b + d.s;
            }
            return sum;
        }
        return slept(depth - 1, b, c, d, a) + a.s;
    }

    private interface Body {
        int run(int i) throws Exception;
    }

    private static void start(String name, boolean isVirtual, Body body) {
        Runnable loop = () -> {
            try {
                for (int i = 0;; i++) {
                    sink += body.run(i);
                }
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        Thread.Builder builder = isVirtual ? Thread.ofVirtual() : Thread.ofPlatform().daemon();
        builder.name(name).start(loop);
    }

    public static void main(String[] arguments) throws Exception {
        start("busy-enters", false, i -> interpretedEnters(made(i), made(i + 1), i));
        start("busy-receives", false, Values::interpretedReceives);
        start("busy-passes", false, Values::passes);
        start("virtual", true, i -> slept(8, made(i), made(i + 1), made(i), made(i + 2)));
        Thread.sleep(100);
        System.out.println("ready");
        System.in.read();
    }
}
