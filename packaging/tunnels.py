#!/usr/bin/env python3
"""An origin that takes any Upgrade and sends back what it gets; and its client. For packaging/train.sh; 127.0.0.1 alone.

    tunnels.py origin                 prints its port, serves until it is ended
    tunnels.py client PORT COUNT      so many tunnels, one after the other, through TLS at PORT
"""

import contextlib
import socket
import ssl
import sys
import threading

MESSAGE = bytes(range(256)) * 16
MESSAGES = 50


def head(stream):
    """What comes before the first empty line."""
    read = b""
    while not read.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        if not byte:
            raise SystemExit("the connection ended in a head")
        read += byte
    return read


def echo(stream):
    with stream:
        head(stream)
        stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        # Clients may end a tunnel in any way.
        with contextlib.suppress(ConnectionError):
            while data := stream.recv(65536):
                stream.sendall(data)


def origin():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=echo, args=(stream,), daemon=True).start()


def client(port, count):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(count):
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as tunnel:
            tunnel.sendall(
                b"GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            answer = head(tunnel)
            if b" 101 " not in answer:
                raise SystemExit(answer.decode())
            for _ in range(MESSAGES):
                tunnel.sendall(MESSAGE)
                left = len(MESSAGE)
                while left:
                    left -= len(tunnel.recv(left))


if sys.argv[1] == "origin":
    origin()
else:
    client(int(sys.argv[2]), int(sys.argv[3]))
