/**
 * Java code that is interpreted, compiled, and deoptimised again and again, and collections, while signals walk: forces
 * codes and kinds of traces.
 *
 * <p>Argument: path of libstackcodes.so, which prints the codes.
 */
public final class StackCodes {
    /** Rounds after which what has not been seen is given up. */
    private static final int MAX_ROUNDS = 20_000;

    static native void states();

    static native void start();

    static native void begin();

    static native long collected();

    static native long walks();

    static native void end();

    private interface Shape {
        long area(long side);
    }

    private static volatile long sink;

    private static long total(Shape shape) {
        long total = 0;
        for (int side = 0; side < 20_000; side++) {
            total += shape.area(side);
        }
        return total;
    }

    /** Each class of a shape is new, so code that was compiled for those before is left. */
    private static Shape shape(int kind) {
        switch (kind % 4) {
            case 0:
                return side -> side * side;
            case 1:
                return side -> side * 3;
            case 2:
                return side -> side + 7;
            default:
                return side -> side ^ kind;
        }
    }

    /** A class that is loaded, an assumption that is wrong. */
    private static long unexpected(Object[] values, int round) {
        long sum = 0;
        for (Object value : values) {
            if (value instanceof Integer) {
                sum += (Integer) value;
            } else if (value instanceof String && round % 50 == 49) {
                sum += ((String) value).length();
            }
        }
        return sum;
    }

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        states();
        start();
        begin();
        Object[] values = {1, 2, "three", 4};
        for (int round = 0; round < MAX_ROUNDS; round++) {
            sink += total(shape(round)) + unexpected(values, round);
            if (round % 10 == 0) {
                System.gc();
            }
            if (collected() > 0 && walks() >= 400 && round > 200) {
                break;
            }
        }
        end();
        System.out.println("== collected");
        System.out.println(collected() > 0);
        System.out.println("== end");
    }
}
