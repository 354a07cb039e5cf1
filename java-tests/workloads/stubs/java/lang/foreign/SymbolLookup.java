package java.lang.foreign;

import java.nio.file.Path;
import java.util.Optional;

/** See {@link Arena}. */
public interface SymbolLookup {
    static SymbolLookup libraryLookup(Path path, Arena arena) {
        return null;
    }

    Optional<MemorySegment> find(String name);
}
