import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * Six threads that live equally long by the wall clock: {@code burner} burns CPU time, {@code copier} has the kernel
 * fill buffers, {@code waiter} waits for an event, {@code sleeper} sleeps, {@code reader} waits for input from a socket
 * and {@code piper} for input from a process, by the same system call as {@code copier}. A profile of wall time has
 * equal shares of them.
 *
 * <p>Each thread prints its life as {@code truth method=METHOD cpu_ns=N}, in nanoseconds of the wall clock. A call that
 * an interrupted system call would end early prints {@code early}.
 *
 * <p>Arguments: seconds of wall time.
 */
public final class WallTime {
    private static final Object EVENT = new Object();
    private static volatile long sink;
    private static boolean hasHappened;

    interface Body {
        void run() throws IOException, InterruptedException;
    }

    static void burn(long nanos) {
        long x = sink;
        long end = System.nanoTime() + nanos;
        do {
            for (int i = 0; i < 100_000; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                x ^= x >>> 17;
            }
        } while (System.nanoTime() < end);
        sink = x;
    }

    static void await() throws InterruptedException {
        synchronized (EVENT) {
            while (!hasHappened) {
                EVENT.wait();
            }
        }
    }

    static void happen() {
        synchronized (EVENT) {
            hasHappened = true;
            EVENT.notifyAll();
        }
    }

    static void sleep(long nanos) throws InterruptedException {
        long start = System.nanoTime();
        Thread.sleep(nanos / 1_000_000);
        if (System.nanoTime() - start < nanos / 1_000_000 * 1_000_000) {
            System.out.println("early end of a sleep");
        }
    }

    static void read(Socket socket) throws IOException {
        if (socket.getInputStream().read() != 42) {
            System.out.println("early end of a read");
        }
    }

    static void copy(long nanos) throws IOException {
        byte[] buffer = new byte[8192];
        long end = System.nanoTime() + nanos;
        try (InputStream zeros = new FileInputStream("/dev/zero")) {
            while (System.nanoTime() < end) {
                for (int i = 0; i < 100; i++) {
                    zeros.read(buffer);
                }
            }
        }
    }

    static void readPipe(InputStream pipe) throws IOException {
        if (pipe.read() != 42) {
            System.out.println("early end of a pipe");
        }
    }

    static Thread start(String name, Body body) {
        Thread thread = new Thread(() -> {
            long start = System.nanoTime();
            try {
                body.run();
            } catch (IOException | InterruptedException failure) {
                System.out.println("early end: " + failure);
            }
            // Before anything else: the first concatenation of strings takes long.
            long life = System.nanoTime() - start;
            ThreadCpu.truthMethod("WallTime." + name, life);
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        long nanos = ThreadCpu.budget(arguments, 3);
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket near = new Socket(server.getInetAddress(), server.getLocalPort());
                Socket far = server.accept()) {
            Thread waiter = start("waiter", WallTime::await);
            Thread reader = start("reader", () -> read(near));
            Thread sleeper = start("sleeper", () -> sleep(nanos));
            Process process = new ProcessBuilder("cat").start();
            InputStream pipe = process.getInputStream();
            Thread piper = start("piper", () -> readPipe(pipe));
            Thread copier = start("copier", () -> copy(nanos));
            Thread burner = start("burner", () -> burn(nanos));
            burner.join();
            copier.join();
            sleeper.join();
            happen();
            far.getOutputStream().write(42);
            process.getOutputStream().write(42);
            process.getOutputStream().flush();
            piper.join();
            process.destroy();
            waiter.join();
            reader.join();
        }
    }
}
