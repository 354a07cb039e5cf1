import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;

/**
 * Waits for a connection without a time limit, and again and again with one, while the main thread burns CPU time; then
 * connects. Prints how the waits have ended.
 *
 * <p>Arguments: seconds of CPU time.
 */
public final class Accepts {
    private static final int LIMIT_MS = 100;

    private static volatile boolean isOver;

    private static ServerSocket server() throws IOException {
        return new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    }

    private static void accept(ServerSocket server) {
        try {
            server.accept().close();
            System.out.println("accepted");
        } catch (IOException exception) {
            System.out.println("ended by " + exception);
        }
    }

    /** Prints how many waits ended before their time. */
    private static void acceptWithLimit() {
        int early = 0;
        while (!isOver) {
            long begin = System.nanoTime();
            try (ServerSocket server = server()) {
                server.setSoTimeout(LIMIT_MS);
                server.accept();
            } catch (SocketTimeoutException exception) {
                early += System.nanoTime() - begin < (LIMIT_MS - 2) * 1_000_000L ? 1 : 0;
            } catch (IOException exception) {
                System.out.println("ended by " + exception);
            }
        }
        System.out.println("early " + early);
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        ServerSocket server = server();
        Thread unlimited = new Thread(() -> accept(server));
        Thread limited = new Thread(Accepts::acceptWithLimit);
        unlimited.start();
        limited.start();
        Burner.burn(ThreadCpu.budget(arguments, 1));
        isOver = true;
        limited.join();
        new Socket(server.getInetAddress(), server.getLocalPort()).close();
        unlimited.join();
    }
}
