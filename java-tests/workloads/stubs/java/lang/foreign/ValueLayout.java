package java.lang.foreign;

/** See {@link Arena}. */
public interface ValueLayout extends MemoryLayout {
    /** See {@link Arena}. */
    interface OfInt extends ValueLayout {}

    /** See {@link Arena}. */
    interface OfLong extends ValueLayout {}

    AddressLayout ADDRESS = null;
    OfInt JAVA_INT = null;
    OfLong JAVA_LONG = null;
}
