package java.lang.foreign;

/** See {@link Arena}. */
public interface StructLayout extends MemoryLayout {}
