import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.file.Path;

/**
 * Profiles a part of a program by the C functions of {@code agent/include/control/tickwalk.h}, without any other class.
 *
 * <p>JDK 22 or newer: {@code java --enable-native-access=ALL-UNNAMED Control.java libtickwalk.so hot.html}.
 */
public final class Control {
    private static final int MESSAGE_BYTES = 1024;
    private static final int ERROR_FILE = 3;
    private static final Linker LINKER = Linker.nativeLinker();
    /** The C library's errno, saved before the JVM can change it. */
    private static final MemoryLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    private final MethodHandle start;
    private final MethodHandle stop;
    private final MethodHandle dump;
    private final MethodHandle status;

    /** Loads the library for as long as the JVM lives. */
    Control(Path library) {
        SymbolLookup lookup = SymbolLookup.libraryLookup(library, Arena.global());
        FunctionDescriptor withText =
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG);
        FunctionDescriptor withoutText =
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG);
        start = function(lookup, "tickwalk_start", withText);
        dump = function(lookup, "tickwalk_dump", withText);
        stop = function(lookup, "tickwalk_stop", withoutText);
        status = function(lookup, "tickwalk_status", withoutText);
    }

    private static MethodHandle function(SymbolLookup lookup, String name, FunctionDescriptor descriptor) {
        MemorySegment address = lookup.find(name).orElseThrow();
        return LINKER.downcallHandle(address, descriptor, Linker.Option.captureCallState("errno"));
    }

    /** Starts a profile with options of the agent, such as {@code interval=1ms}. */
    void start(String options) {
        call(start, options);
    }

    /** Ends the profile. */
    void stop() {
        call(stop, null);
    }

    /** Writes what was sampled so far, in the format that the name ends with. */
    void dump(Path file) {
        call(dump, file.toString());
    }

    /** Returns what the agent does, in lines of {@code name=value}. */
    String status() {
        return call(status, null);
    }

    private static String call(MethodHandle function, String argument) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            MemorySegment text = arena.allocate(MESSAGE_BYTES);
            // Native code takes the addresses of these segments, so exact types are no part of the call.
            int code = argument == null
                ? (int) function.invoke(state, text, (long) MESSAGE_BYTES)
                : (int) function.invoke(state, arena.allocateFrom(argument), text, (long) MESSAGE_BYTES);
            if (code != 0) {
                // The header gives errno a meaning for errors of files.
                String cause = code == ERROR_FILE ? ", errno " + (int) ERRNO.get(state, 0L) : "";
                throw new IllegalStateException("code " + code + cause + ": " + text.getString(0));
            }
            return text.getString(0);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static double work() {
        double sum = 0;
        for (int i = 1; i < 60_000_000; i++) {
            sum += Math.sqrt(i) / Math.log(i + 1);
        }
        return sum;
    }

    /** Arguments: the library, and a file for the result. */
    public static void main(String[] arguments) {
        Control control = new Control(Path.of(arguments[0]).toAbsolutePath());
        control.start("interval=1ms");
        System.out.println(control.status());
        System.out.println("result " + work());
        control.stop();
        control.dump(Path.of(arguments[1]));
        try {
            control.dump(Path.of("/nonexistent/result.html"));
        } catch (IllegalStateException e) {
            System.out.println(e.getMessage());
        }
        try {
            control.stop();
        } catch (IllegalStateException e) {
            System.out.println(e.getMessage());
        }
    }
}
