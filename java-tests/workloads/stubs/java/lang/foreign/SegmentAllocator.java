package java.lang.foreign;

/** See {@link Arena}. */
public interface SegmentAllocator {
    MemorySegment allocateFrom(String text);

    MemorySegment allocate(long bytes);

    MemorySegment allocate(MemoryLayout layout);
}
