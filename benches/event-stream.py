#!/usr/bin/env python3
"""Time to the first byte of an event stream over HTTP/1.1, through litequic programs and nginx in turn, in microseconds.

benches/event-stream.py PROGRAM... [nginx]

The origin sends the header of a response alone, or with a first event, and the next event 30 ms later: a proxy that waits for it shows
more than 30,000. Needs openssl, and nginx if it is named.
"""

import pathlib
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REQUESTS, WARM_UP = 200, 20
EVENT_DELAY = 0.03
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: 1\n\n\r\n"
LAST = b"0\r\n\r\n"
CASES = {"header": HEAD, "header and event": HEAD + EVENT}
begin = HEAD


def serve(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seen = b""
    while True:
        while b"\r\n\r\n" not in seen:
            read = client.recv(65536)
            if not read:
                return
            seen += read
        seen = seen.split(b"\r\n\r\n", 1)[1]
        client.sendall(begin)
        time.sleep(EVENT_DELAY)
        client.sendall(EVENT + LAST)


def origin():
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def litequic(program, folder, upstream):
    port = free_port()
    config = folder / f"{port}.toml"
    config.write_text(
        f'listen.udp = "127.0.0.1:{port}"\nlisten.tcp = ["127.0.0.1:{port}"]\nlisten.workers = 1\nadmin.socket = ""\n'
        f'origin.url = "http://127.0.0.1:{upstream}"\n'
        f'[[certificates]]\ncert = "{folder}/tls.crt"\nkey = "{folder}/tls.key"\n'
    )
    return port, [program, "run", "--config", config]


def nginx(folder, upstream):
    port = free_port()
    config = folder / "nginx.conf"
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi"))
    config.write_text(
        f"worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}}\n"
        f"http {{ access_log off; {temporary} upstream o {{ server 127.0.0.1:{upstream}; keepalive 8; }}\n"
        f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/tls.crt; ssl_certificate_key {folder}/tls.key;\n"
        "location / { proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off; } } }\n"
    )
    return port, ["nginx", "-c", config]


def connect(port, folder):
    deadline = time.monotonic() + 10
    while True:
        try:
            stream = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ssl.create_default_context(cafile=folder / "tls.crt").wrap_socket(stream, server_hostname="localhost")


def first_byte(stream):
    began = time.perf_counter()
    stream.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    seen = stream.recv(65536)
    took = (time.perf_counter() - began) * 1e6
    assert seen.startswith(b"HTTP/1.1 200"), seen
    while not seen.endswith(LAST):
        seen += stream.recv(65536)
    return took


def main(programs):
    global begin
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
            check=True, capture_output=True,
        )
        upstream, running, ports = origin(), [], {}
        try:
            for program in programs:
                ports[program], command = nginx(folder, upstream) if program == "nginx" else litequic(program, folder, upstream)
                running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for case, begin in CASES.items():
                clients = {program: connect(port, folder) for program, port in ports.items()}
                times = {program: [] for program in ports}
                for _ in range(WARM_UP + REQUESTS):
                    for program, client in clients.items():
                        times[program].append(first_byte(client))
                for program, all_times in times.items():
                    measured = sorted(all_times[WARM_UP:])
                    median, tenth = statistics.median(measured), measured[len(measured) * 9 // 10]
                    print(f"{case}: {program}: median {median:.0f}, 90 % below {tenth:.0f}")
        finally:
            for process in running:
                process.terminate()
                process.wait()


main(sys.argv[1:])
