/** Starts and ends: for measuring what a profiler adds to the JVM's start. */
public final class Hello {
    private Hello() {}

    public static void main(String[] arguments) {
        System.out.println("hello");
    }
}
