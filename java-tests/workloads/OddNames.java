import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs the same work in methods, classes and threads whose names are hard to show: beyond the BMP, with lone
 * surrogates, control characters and NUL, and longer than 2,048 bytes with the difference at the end. Each has the same
 * CPU time.
 *
 * <p>Arguments: milliseconds of CPU time of each.
 */
public final class OddNames {
    private static final String LONG = "m" + "x".repeat(2100);

    private static final String[] NAMES = {
        "plain", "rocket\uD83D\uDE80", "train\uD83D\uDE81", "nl\nx", "nul\0x", "lone\uD800", "lone\uD801",
        "esc\u001bx", "cr\rx", "tab\tx", "c1\u009bx", "bidi\u202ex", LONG + "A", LONG + "B",
    };

    static volatile long sink;

    public static void main(String[] arguments) throws Exception {
        long nanos = Long.parseLong(arguments[0]) * 1_000_000;
        // A virtual thread has no CPU clock, so all do as many steps as took so long on this thread, in compiled code.
        burn(nanos);
        long steps = burn(nanos);
        Runnable work = () -> repeat(steps);
        List<Call> calls = new ArrayList<>();
        for (String name : NAMES) {
            calls.add(new Call("Odd", name, ""));
        }
        for (String name : List.of("e/\uD83D\uDE80", "e/\uD83D\uDE81", LONG + "A", LONG + "B")) {
            calls.add(new Call(name, "of", ""));
        }
        for (String type : List.of("A", "B")) {
            calls.add(new Call("Odd", "over", "L" + LONG + type + ";"));
        }
        Loader loader = new Loader();
        Map<String, List<Call>> classes = new HashMap<>();
        calls.forEach(call -> classes.computeIfAbsent(call.owner, owner -> new ArrayList<>()).add(call));
        for (Map.Entry<String, List<Call>> type : classes.entrySet()) {
            loader.define(new ClassFile(type.getKey()).withMethods(type.getValue()));
        }
        Class<?> caller = loader.define(new ClassFile("Caller").withCalls(calls));
        caller.getMethod("callAll", Runnable.class).invoke(null, work);
        for (String name : NAMES) {
            Thread thread = new Thread(work, name);
            thread.start();
            thread.join();
        }
        for (String name : NAMES) {
            Thread thread = virtual("v" + name, work);
            if (thread != null) {
                thread.join();
            }
        }
    }

    /** Starts a virtual thread; returns null on a JDK without them. */
    private static Thread virtual(String name, Runnable work) throws ReflectiveOperationException {
        Method builders;
        try {
            builders = Thread.class.getMethod("ofVirtual");
        } catch (NoSuchMethodException exception) {
            return null;
        }
        Object builder = builders.invoke(null);
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        type.getMethod("name", String.class).invoke(builder, name);
        return (Thread) type.getMethod("start", Runnable.class).invoke(builder, work);
    }

    /** Burns CPU time; returns the number of steps it took. */
    private static long burn(long nanos) {
        long end = ThreadCpu.nanos() + nanos;
        long steps = 0;
        while (ThreadCpu.nanos() < end) {
            step();
            steps++;
        }
        return steps;
    }

    private static void repeat(long steps) {
        for (long i = 0; i < steps; i++) {
            step();
        }
    }

    /** Takes some microseconds. */
    private static void step() {
        long x = sink;
        for (int i = 0; i < 10_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        sink = x;
    }

    /** A static method that takes the work, and null if it has a further parameter. */
    private static final class Call {
        final String owner;
        final String name;
        final String further;

        Call(String owner, String name, String further) {
            this.owner = owner;
            this.name = name;
            this.further = further;
        }

        String descriptor() {
            return "(Ljava/lang/Runnable;" + further + ")V";
        }
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] file) {
            return defineClass(null, file, 0, file.length);
        }
    }

    /** Writes a class file; DataOutputStream.writeUTF writes modified UTF-8, which class files have. */
    private static final class ClassFile {
        private final ByteArrayOutputStream poolBytes = new ByteArrayOutputStream();
        private final DataOutputStream pool = new DataOutputStream(poolBytes);
        private int entries;
        private final String name;

        ClassFile(String name) {
            this.name = name;
        }

        /** Each method runs the work. */
        byte[] withMethods(List<Call> methods) throws IOException {
            int run = reference(11, "java/lang/Runnable", "run", "()V");
            List<byte[]> written = new ArrayList<>();
            for (Call method : methods) {
                // aload_0, invokeinterface, return
                byte[] code = {0x2a, (byte) 0xb9, (byte) (run >> 8), (byte) run, 1, 0, (byte) 0xb1};
                written.add(method(method.name, method.descriptor(), code));
            }
            return file(written);
        }

        /** The method `callAll` makes all calls. */
        byte[] withCalls(List<Call> calls) throws IOException {
            ByteArrayOutputStream code = new ByteArrayOutputStream();
            for (Call call : calls) {
                int method = reference(10, call.owner, call.name, call.descriptor());
                // aload_0, aconst_null, invokestatic
                code.write(0x2a);
                if (!call.further.isEmpty()) {
                    code.write(1);
                }
                code.writeBytes(new byte[] {(byte) 0xb8, (byte) (method >> 8), (byte) method});
            }
            code.write(0xb1);
            return file(List.of(method("callAll", "(Ljava/lang/Runnable;)V", code.toByteArray())));
        }

        private byte[] method(String name, String descriptor, byte[] code) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeShort(9);
            out.writeShort(text(name));
            out.writeShort(text(descriptor));
            out.writeShort(1);
            out.writeShort(text("Code"));
            out.writeInt(12 + code.length);
            out.writeShort(2);
            out.writeShort(2);
            out.writeInt(code.length);
            out.write(code);
            out.writeInt(0);
            return bytes.toByteArray();
        }

        private byte[] file(List<byte[]> methods) throws IOException {
            int own = type(name);
            int parent = type("java/lang/Object");
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeInt(0xcafebabe);
            out.writeInt(49);
            out.writeShort(entries + 1);
            out.write(poolBytes.toByteArray());
            out.writeShort(0x21);
            out.writeShort(own);
            out.writeShort(parent);
            out.writeInt(0);
            out.writeShort(methods.size());
            for (byte[] method : methods) {
                out.write(method);
            }
            out.writeShort(0);
            return bytes.toByteArray();
        }

        private int text(String text) throws IOException {
            pool.writeByte(1);
            pool.writeUTF(text);
            return ++entries;
        }

        private int type(String name) throws IOException {
            int text = text(name);
            pool.writeByte(7);
            pool.writeShort(text);
            return ++entries;
        }

        private int reference(int tag, String owner, String name, String descriptor) throws IOException {
            int type = type(owner);
            int nameText = text(name);
            int descriptorText = text(descriptor);
            pool.writeByte(12);
            pool.writeShort(nameText);
            pool.writeShort(descriptorText);
            int pair = ++entries;
            pool.writeByte(tag);
            pool.writeShort(type);
            pool.writeShort(pair);
            return ++entries;
        }
    }
}
