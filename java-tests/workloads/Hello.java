/** Prints a line and ends, to measure what a profiler adds to the start of the JVM. */
public final class Hello {
    private Hello() {}

    public static void main(String[] arguments) {
        System.out.println("hello");
    }
}
