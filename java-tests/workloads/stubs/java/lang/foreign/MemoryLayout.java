package java.lang.foreign;

import java.lang.invoke.VarHandle;

/** See {@link Arena}. */
public interface MemoryLayout {
    /** See {@link Arena}. */
    interface PathElement {
        static PathElement groupElement(String name) {
            return null;
        }
    }

    VarHandle varHandle(PathElement... elements);
}
