package one.profiler;

import java.io.IOException;

/**
 * A class of the name and with the native methods of async-profiler's Java API; a library binds them when it is loaded.
 */
public final class AsyncProfiler {
    public native void start0(String event, long interval, boolean reset);

    public native void stop0();

    public native String execute0(String command) throws IOException;

    public native byte[] execute1(String command) throws IOException;

    public native long getSamples();

    public native void filterThread0(Thread thread, boolean enable);
}
