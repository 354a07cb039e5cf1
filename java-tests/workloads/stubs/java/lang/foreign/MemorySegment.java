package java.lang.foreign;

/** See {@link Arena}. */
public interface MemorySegment {
    String getString(long offset);
}
