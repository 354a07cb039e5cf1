package java.lang.foreign;

/** Declarations of JDK 22, as far as the examples use them: the pinned compiler is older. */
public interface Arena extends SegmentAllocator, AutoCloseable {
    static Arena global() {
        return null;
    }

    static Arena ofConfined() {
        return null;
    }

    @Override
    void close();
}
