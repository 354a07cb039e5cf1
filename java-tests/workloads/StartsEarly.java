import java.lang.instrument.Instrumentation;
import one.profiler.AsyncProfiler;

/**
 * Runs a command of async-profiler's API as a Java agent, which the VM calls while it is being initialised, and burns
 * CPU time as a program.
 *
 * <p>Options of the agent: the command; the library is named by the property {@code library}. Argument of the program:
 * seconds of CPU time.
 */
public final class StartsEarly {
    public static void premain(String command, Instrumentation instrumentation) {
        String library = System.getProperty("library");
        if (!library.isEmpty()) {
            System.load(library);
        }
        try {
            System.out.println("premain: " + new AsyncProfiler().execute0(command).trim());
        } catch (Exception exception) {
            System.out.println("premain: " + exception);
        }
    }

    public static void main(String[] arguments) {
        Burner.burn(ThreadCpu.budget(arguments, 1));
    }
}
