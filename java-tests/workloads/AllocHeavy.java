import java.util.ArrayDeque;

/**
 * Allocates trees of small objects and keeps some of them for a while, which causes young and old collections.
 *
 * <p>Arguments: seconds of CPU time of the main thread.
 */
public final class AllocHeavy {
    private static volatile long sink;

    static final class Node {
        final Node left;
        final Node right;
        final byte[] payload;

        Node(Node left, Node right) {
            this.left = left;
            this.right = right;
            this.payload = new byte[48];
        }
    }

    static Node grow(int depth) {
        if (depth == 0) {
            return new Node(null, null);
        }
        return new Node(grow(depth - 1), grow(depth - 1));
    }

    static long count(Node node) {
        return node == null ? 0 : 1 + count(node.left) + count(node.right) + node.payload[0];
    }

    public static void main(String[] arguments) {
        long budget = ThreadCpu.budget(arguments, 4);
        ArrayDeque<Node> kept = new ArrayDeque<>();
        long start = ThreadCpu.nanos();
        long now = start;
        long trees = 0;
        while (now - start < budget) {
            kept.addLast(grow(12));
            if (kept.size() > 60) {
                sink += count(kept.removeFirst());
            }
            trees++;
            now = ThreadCpu.nanos();
        }
        ThreadCpu.truth("method=AllocHeavy.main cpu_ns=" + (now - start) + " trees=" + trees);
        ThreadCpu.truthThread();
    }
}
