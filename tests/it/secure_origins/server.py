"""A server over TLS that closes a connection without unwrapping it, as many do: no close_notify."""

import socket
import ssl
import sys
import threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], "listening", flush=True)


def head(stream):
    lines = []
    while (line := stream.readline().strip()):
        lines.append(line.decode())
    return lines


def serve(connection):
    try:
        tls = context.wrap_socket(connection, server_side=True)
    except (ssl.SSLError, OSError):
        return
    stream = tls.makefile("rwb")
    while lines := head(stream):
        path = lines[0].split()[1]
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        if path == "/length":
            stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000)
        elif path == "/upload":
            length = 0
            if "content-length" in fields:
                length = len(stream.read(int(fields["content-length"])))
            else:
                while size := int(stream.readline(), 16):
                    length += len(stream.read(size))
                    stream.readline()
                stream.readline()
            text = str(length).encode()
            stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        elif path == "/close":
            stream.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 100000)
            stream.flush()
            # The TCP connection ends; TLS does not.
            socket.socket.shutdown(tls, socket.SHUT_RDWR)
            return
        elif path == "/socket":
            stream.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
            stream.flush()
            while data := tls.recv(4096):
                tls.sendall(data)
            tls.sendall(b"bye")
            tls.unwrap()
            return
        stream.flush()


while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
