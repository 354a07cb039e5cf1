import com.sun.tools.attach.VirtualMachine;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;

/** Loads a Java agent into the JVM that it runs in; needs {@code -Djdk.attach.allowAttachSelf=true}. */
final class SelfAttach {
    private SelfAttach() {}

    /** Loads a class as an agent that may do what {@code ability} names, such as {@code Can-Redefine-Classes}. */
    static void load(Class<?> agent, String ability) throws Exception {
        Path jar = Files.createTempFile("agent", ".jar");
        Manifest manifest = new Manifest();
        Attributes entries = manifest.getMainAttributes();
        entries.put(Attributes.Name.MANIFEST_VERSION, "1.0");
        entries.put(new Attributes.Name("Agent-Class"), agent.getName());
        entries.put(new Attributes.Name(ability), "true");
        try (OutputStream file = Files.newOutputStream(jar)) {
            new JarOutputStream(file, manifest).close();
        }
        VirtualMachine self = VirtualMachine.attach(Long.toString(ProcessHandle.current().pid()));
        self.loadAgent(jar.toString());
        self.detach();
        Files.delete(jar);
    }
}
