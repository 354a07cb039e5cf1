import java.util.Random;

/**
 * One call site has eight receiver classes that do equal work: every call passes through an itable stub and nothing is
 * inlined. Each class takes about an eighth of the time.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class Megamorphic {
    private static volatile long sink;

    interface Shape {
        long area(long x);
    }

    static long work(long x) {
        for (int i = 0; i < 100; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        }
        return x;
    }

    static final class Shape0 implements Shape {
        @Override
        public long area(long x) {
            return work(x);
        }
    }

    static final class Shape1 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 1);
        }
    }

    static final class Shape2 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 2);
        }
    }

    static final class Shape3 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 3);
        }
    }

    static final class Shape4 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 4);
        }
    }

    static final class Shape5 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 5);
        }
    }

    static final class Shape6 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 6);
        }
    }

    static final class Shape7 implements Shape {
        @Override
        public long area(long x) {
            return work(x + 7);
        }
    }

    static long sum(Shape[] shapes, long x) {
        for (Shape shape : shapes) {
            x = shape.area(x);
        }
        return x;
    }

    public static void main(String[] arguments) {
        Shape[] kinds = {
            new Shape0(), new Shape1(), new Shape2(), new Shape3(),
            new Shape4(), new Shape5(), new Shape6(), new Shape7(),
        };
        Random random = new Random(1);
        Shape[] shapes = new Shape[8000];
        for (int i = 0; i < shapes.length; i++) {
            // Every class equally often, in random order.
            int other = random.nextInt(i + 1);
            shapes[i] = shapes[other];
            shapes[other] = kinds[i % kinds.length];
        }
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        long now = start;
        long burned = 0;
        while (now - start < budget) {
            sink = sum(shapes, sink);
            long after = ThreadCpu.nanos();
            burned += after - now;
            now = after;
        }
        for (Shape kind : kinds) {
            ThreadCpu.truthMethod(kind.getClass().getName() + ".area", burned / kinds.length);
        }
        ThreadCpu.truthMethod("Megamorphic.sum", burned);
        ThreadCpu.truthThread();
    }
}
