package java.lang.foreign;

import java.lang.invoke.MethodHandle;

/** See {@link Arena}. */
public interface Linker {
    /** See {@link Arena}. */
    interface Option {
        static Option captureCallState(String... names) {
            return null;
        }

        static StructLayout captureStateLayout() {
            return null;
        }
    }

    static Linker nativeLinker() {
        return null;
    }

    MethodHandle downcallHandle(MemorySegment address, FunctionDescriptor function, Option... options);
}
