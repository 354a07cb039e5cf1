/**
 * Runs {@code RegexStrings} with handlers of SIGSEGV and SIGBUS that are not the VM's.
 *
 * <p>Arguments: seconds of CPU time; path of libfaulthandlers.so.
 */
public final class FaultHandlers {
    static native long install();

    public static void main(String[] arguments) {
        System.load(arguments[1]);
        if (install() != 0) {
            throw new IllegalStateException("the handlers cannot be installed");
        }
        RegexStrings.main(arguments);
    }
}
