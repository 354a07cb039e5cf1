import java.nio.file.Path;

/**
 * Starts another JVM that burns CPU time, and waits for it, like a build tool or a launcher.
 *
 * <p>Argument: seconds of CPU time of the other JVM.
 */
public final class StartsJvm {
    public static void main(String[] arguments) throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("java.class.path");
        ProcessBuilder child = new ProcessBuilder(java, "-cp", classes, "Burner", arguments[0]);
        System.exit(child.inheritIO().start().waitFor());
    }
}
