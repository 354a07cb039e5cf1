package java.lang.foreign;

/** See {@link Arena}. */
public interface FunctionDescriptor {
    static FunctionDescriptor of(MemoryLayout result, MemoryLayout... arguments) {
        return null;
    }
}
