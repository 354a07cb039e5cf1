"""Starts and stops profiles of a running JVM without another process: the attach protocol takes a socket and a line."""

import os
import pathlib
import signal
import socket
import time

# Seconds that a JVM has to open its socket.
SOCKET_SECONDS = 60


class Attached:
    """The connection to a JVM that can load libraries."""

    def __init__(self, pid, library):
        self.library, self.path = library, f"/tmp/.java_pid{pid}"
        if not os.path.exists(self.path):
            request = pathlib.Path(f"/proc/{pid}/cwd/.attach_pid{pid}")
            request.touch()
            os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + SOCKET_SECONDS
            while not os.path.exists(self.path) and time.monotonic() < deadline:
                time.sleep(0.01)
            request.unlink(missing_ok=True)

    def load(self, options):
        """Passes options to the agent; fails unless it accepts them."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            words = ["1", "load", str(self.library), "true", options]
            connection.sendall(b"".join(word.encode() + b"\0" for word in words))
            answer = b""
            while part := connection.recv(4096):
                answer += part
        # The VM's result, and that of the agent; JDK 11 answers with the number alone.
        lines = answer.decode(errors="replace").split()
        if lines[0] != "0" or lines[-1] != "0":
            raise ValueError(f"{options}: the JVM answers {answer!r}")

    def start(self, file, interval="1ms"):
        self.load(f"interval={interval},file={file},strict")

    def stop(self):
        self.load("stop")
