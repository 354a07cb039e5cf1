"""An S3 server for tests of the lake: localbucket, behind a proxy that fails on demand.

usage: object_store.py DIRECTORY BUCKET [CERTIFICATE KEY]
With the PEM files of a certificate and its key, it accepts TLS only.
Objects are files in DIRECTORY/BUCKET. Prints "ready PORT", then reads commands from standard input, a line each, and
answers each with the requests so far, by method, as a line of JSON:
  fault KEY NAME     requests with this access key fail in this way from now on (a method of `Faults`)
  requests           changes nothing
Ends with its input.
"""

import collections
import http.client
import http.server
import json
import logging
import pathlib
import re
import socket
import ssl
import sys
import threading
import time

import localbucket

KEY = re.compile(r"Credential=([^/]+)/")
# Headers that belong to one of the two connections.
OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "date", "server"}
SLOW_SECONDS = 0.5


class Faults:
    """Each method answers a request or breaks its connection, and returns whether the request was thereby settled."""

    @staticmethod
    def none(_):
        return False

    @staticmethod
    def slow(_):
        time.sleep(SLOW_SECONDS)
        return False

    @staticmethod
    def unavailable(request):
        return request.refuse(503, "SlowDown")

    @staticmethod
    def full(request):
        return request.refuse(403, "QuotaExceeded")

    @staticmethod
    def cut(request):
        """Breaks the connection: of every second request after the object is stored."""
        request.store.cuts += 1
        if request.store.cuts % 2 == 0:
            request.forward()
        request.close_connection = True
        request.connection.shutdown(socket.SHUT_RDWR)
        return True


class Store:
    """Address of the server, faults by access key, and requests by method."""

    def __init__(self, directory):
        localbucket.S3Handler.data_root = directory
        self.address = serve(localbucket.S3Handler)
        self.faults, self.cuts, self.requests = {}, 0, collections.Counter()

    def send(self, method, path, headers, body):
        """Returns the status, the headers and the body of the answer."""
        connection = http.client.HTTPConnection(*self.address)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def handle_request(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.store.requests[self.command] += 1
        key = KEY.search(self.headers.get("Authorization", ""))
        fault = self.store.faults.get(key[1] if key else "", "none")
        if not getattr(Faults, fault)(self):
            self.answer(*self.forward())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_request

    def forward(self):
        return self.store.send(self.command, self.path, dict(self.headers), self.body)

    def refuse(self, status, code):
        text = f"<Error><Code>{code}</Code><Message>as ordered</Message></Error>".encode()
        self.answer(status, [("Content-Type", "application/xml")], text)
        return True

    def answer(self, status, headers, body):
        self.send_response(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() not in OWN_HEADERS:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # Connections that wait to be accepted.
    request_queue_size = 128

    def handle_error(self, *_):
        """Connections that a fault or a killed collector breaks are no error here."""


def serve(handler, certificate=()):
    """Starts a server; returns its address."""
    server = Server(("127.0.0.1", 0), handler)
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address


def main():
    directory, bucket = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    (directory / bucket).mkdir(parents=True, exist_ok=True)
    # The server logs each request.
    logging.disable()
    store = Proxy.store = Store(directory)
    print("ready", serve(Proxy, sys.argv[3:])[1], flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "fault":
            key, fault = words
            # Fails for an unknown one.
            getattr(Faults, fault)
            store.faults[key] = fault
        print(json.dumps(store.requests), flush=True)


if __name__ == "__main__":
    main()
