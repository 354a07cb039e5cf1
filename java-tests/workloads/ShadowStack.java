import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Random;
import java.util.function.LongUnaryOperator;
import java.util.stream.IntStream;

/**
 * Records its own stacks: every method adds itself to a tree while it runs, and at the end the program prints the tree,
 * which holds every stack it had. Calls are plain, recursive, through an interface with several receivers, through
 * lambdas, streams and reflection, and some end by exceptions. Receivers change over time, so that compiled code is
 * deoptimised.
 *
 * <p>Arguments: seconds of CPU time. Prints {@code shadow NODE PARENT METHOD}, the root first.
 */
public final class ShadowStack {
    private static final int SEEDS = 300;
    private static final int DEPTH = 9;
    private static volatile long sink;

    // The tree; a node's number is its index. Only the main thread uses it.
    private static int[] parents = new int[1 << 12];
    private static String[] names = new String[1 << 12];
    private static int[][] children = new int[1 << 12][];
    private static int nodes;
    private static int current;

    private static void push(String name) {
        int[] below = children[current];
        for (int child : below) {
            if (names[child] == name) {
                current = child;
                return;
            }
        }
        if (nodes == names.length) {
            parents = Arrays.copyOf(parents, 2 * nodes);
            names = Arrays.copyOf(names, 2 * nodes);
            children = Arrays.copyOf(children, 2 * nodes);
        }
        children[current] = Arrays.copyOf(below, below.length + 1);
        children[current][below.length] = nodes;
        current = add(name, current);
    }

    private static int add(String name, int parent) {
        names[nodes] = name;
        parents[nodes] = parent;
        children[nodes] = new int[0];
        return nodes++;
    }

    private static void pop() {
        current = parents[current];
    }

    interface Shape {
        long call(Random random, int depth);
    }

    static final class Round implements Shape {
        @Override
        public long call(Random random, int depth) {
            push("ShadowStack$Round.call");
            try {
                return next(random, depth) + 1;
            } finally {
                pop();
            }
        }
    }

    static final class Square implements Shape {
        @Override
        public long call(Random random, int depth) {
            push("ShadowStack$Square.call");
            try {
                return next(random, depth) ^ 2;
            } finally {
                pop();
            }
        }
    }

    static final class Flat implements Shape {
        @Override
        public long call(Random random, int depth) {
            push("ShadowStack$Flat.call");
            try {
                return next(random, depth) * 3;
            } finally {
                pop();
            }
        }
    }

    private static final Shape[] SHAPES = {new Round(), new Square(), new Flat()};
    private static int shapes = 1;

    static long next(Random random, int depth) {
        push("ShadowStack.next");
        try {
            if (depth <= 0) {
                return burn();
            }
            switch (random.nextInt(7)) {
                case 0: return recurse(random, depth, 3 + random.nextInt(30));
                case 1: return SHAPES[random.nextInt(shapes)].call(random, depth - 1);
                case 2: return lambda(random, depth);
                case 3: return stream(random, depth);
                case 4: return thrown(random, depth);
                case 5: return reflected(random, depth);
                default: return next(random, depth - 1) + next(random, depth - 2);
            }
        } finally {
            pop();
        }
    }

    static long recurse(Random random, int depth, int count) {
        push("ShadowStack.recurse");
        try {
            return count == 0 ? next(random, depth - 1) : recurse(random, depth, count - 1) + 1;
        } finally {
            pop();
        }
    }

    static long lambda(Random random, int depth) {
        push("ShadowStack.lambda");
        try {
            LongUnaryOperator operator = x -> next(random, depth - 1) + x;
            return operator.applyAsLong(depth);
        } finally {
            pop();
        }
    }

    static long stream(Random random, int depth) {
        push("ShadowStack.stream");
        try {
            return IntStream.range(0, 2).map(i -> i + 1).mapToLong(i -> i == 1 ? next(random, depth - 1) : burn()).sum();
        } finally {
            pop();
        }
    }

    static long thrown(Random random, int depth) {
        push("ShadowStack.thrown");
        try {
            return thrower(random, depth);
        } catch (IllegalStateException exception) {
            return burn();
        } finally {
            pop();
        }
    }

    static long thrower(Random random, int depth) {
        push("ShadowStack.thrower");
        try {
            long result = next(random, depth - 2);
            if (random.nextBoolean()) {
                throw new IllegalStateException("on purpose");
            }
            return result;
        } finally {
            pop();
        }
    }

    private static Method nextMethod;

    static long reflected(Random random, int depth) {
        push("ShadowStack.reflected");
        try {
            return (long) nextMethod.invoke(null, random, depth - 1);
        } catch (IllegalAccessException | InvocationTargetException exception) {
            throw new AssertionError(exception);
        } finally {
            pop();
        }
    }

    static long burn() {
        push("ShadowStack.burn");
        try {
            long x = sink;
            for (int i = 0; i < 300; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
            return x;
        } finally {
            pop();
        }
    }

    public static void main(String[] arguments) throws Exception {
        nextMethod = ShadowStack.class.getDeclaredMethod("next", Random.class, int.class);
        current = add("ShadowStack.main", 0);
        long budget = ThreadCpu.budget(arguments, 3);
        long start = ThreadCpu.nanos();
        while (ThreadCpu.nanos() - start < budget) {
            // One receiver at first, then two, then three, so that code compiled for fewer receivers is deoptimised.
            shapes = (int) Math.min(SHAPES.length, 1 + 4 * (ThreadCpu.nanos() - start) / budget);
            for (int seed = 0; seed < SEEDS; seed++) {
                sink = next(new Random(seed), DEPTH);
            }
        }
        StringBuilder text = new StringBuilder();
        for (int node = 0; node < nodes; node++) {
            text.append("shadow ").append(node).append(' ').append(parents[node]).append(' ').append(names[node]).append('\n');
        }
        System.out.print(text);
        ThreadCpu.truthThread();
    }
}
