#!/usr/bin/env python3
"""The longest turn of litequic's workers with many connections, while `/clients` is asked ten times a second, in milliseconds.

benches/turns.py LITEQUIC LABORATORY [CONNECTIONS]

Half of the connections are over QUIC (litequic-lab load idle), half over TLS with HTTP/1.1; two workers. A turn is the time from the end of
an epoll_wait(2) of a worker to the beginning of the next one, as perf sees them: with all that the kernel does between, but without the time
for which another program has its core. Prints the number, the median and the longest of ten seconds, without a question and with each.
Needs root, perf, openssl.
"""

import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SECONDS, INTERVAL = 10, 0.1
SYSCALLS = ["syscalls:sys_exit_epoll_wait", "syscalls:sys_enter_epoll_wait"]
# Of the orders the one that asks the kernel about every connection over TCP, and the default; each with as many rows as there may be.
QUESTIONS = [None, "sort=rtt&limit=1000", "sort=sent-rate&limit=1000", "sort=open&limit=50"]
CONFIG = """
[listen]
udp = "127.0.0.1:{port}"
tcp = "127.0.0.1:{port}"
workers = 2
[origin]
url = "http://127.0.0.1:9"
[[routes]]
respond = {{ status = 200, body = "idle" }}
[admin]
listen = "127.0.0.1:{admin}"
[limits]
max_connections = {most}
source_exempt = "127.0.0.0/8"
[laboratory]
max_handshakes = {most}
[timeouts]
idle = "10m"
[[certificates]]
cert = "{path}/tls.crt"
key = "{path}/tls.key"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connections_over_tcp(port, count):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return [context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") for _ in range(count)]


def list_of(admin, query):
    connection = http.client.HTTPConnection("127.0.0.1", admin)
    with contextlib.closing(connection):
        connection.request("GET", f"/clients?{query}")
        return json.loads(connection.getresponse().read())


def turns(threads, query, admin, path):
    """Turns of all workers in milliseconds, and how many lists came meanwhile."""
    def of_workers(event, *fields):
        return ["-e", event, "--filter", " || ".join(f"{field} == {thread}" for field in fields for thread in threads)]

    events = [part for event in SYSCALLS for part in of_workers(event, "common_pid")] + of_workers("sched:sched_switch", "prev_pid", "next_pid")
    record = ["perf", "record", "-q", "-a", *events, "-o", f"{path}/perf.data", "--", "sleep", str(SECONDS)]
    done, lists = threading.Event(), []

    def ask():
        while not done.wait(INTERVAL):
            lists.append(list_of(admin, query)["connections"])

    asking = threading.Thread(target=ask)
    if query:
        asking.start()
    subprocess.run(record, check=True, stderr=subprocess.DEVNULL)
    done.set()
    if query:
        asking.join()
    script = subprocess.run(["perf", "script", "-i", f"{path}/perf.data", "-F", "tid,time,event,trace"], check=True, capture_output=True, text=True)
    began, displaced, found = {}, {}, []
    for line in script.stdout.splitlines():
        match = re.match(r"\s*(-?\d+)\s+([\d.]+):\s+(\S+):\s+(.*)", line)
        assert match, repr(line)
        thread, at, event, more = match[1], float(match[2]), match[3], match[4]
        if event == SYSCALLS[0]:
            began[thread] = at
        elif event == SYSCALLS[1]:
            if thread in began:
                found.append((at - began.pop(thread)) * 1000)
        else:
            before, state, now = re.search(r"prev_pid=(\d+).*prev_state=(\S+) .*next_pid=(\d+)", more).groups()
            # It could run on: another program has the core.
            if before in threads and state.startswith("R"):
                displaced[before] = at
            if now in displaced and now in began:
                began[now] += at - displaced[now]
            displaced.pop(now, None)
    return found, lists


def main(litequic, laboratory, count=5000):
    count = int(count)
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as ends:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE",
            "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{path}/tls.key", "-out", f"{path}/tls.crt"], check=True, stderr=subprocess.DEVNULL)
        port, admin = free_port(), free_port()
        pathlib.Path(path, "run.toml").write_text(CONFIG.format(port=port, admin=admin, most=4 * count, path=path))

        def start(*command):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr)
            ends.callback(process.wait)
            ends.callback(process.send_signal, signal.SIGKILL)
            return process

        process = start(litequic, "run", "--config", f"{path}/run.toml", "--log-level", "warn")
        for _ in range(100):
            assert process.poll() is None, "litequic has ended"
            with contextlib.suppress(OSError):
                list_of(admin, "")
                break
            time.sleep(0.1)
        before = memory(process.pid)
        start(laboratory, "load", "idle", "--address", f"127.0.0.1:{port}", "--insecure", "--connections", str(count // 2), "--seconds", "600", "--deadline", "600")
        over_tcp = connections_over_tcp(port, count - count // 2)
        while (now := list_of(admin, "limit=1")["connections"]) < count:
            print(f"{now} of {count} connections", file=sys.stderr)
            time.sleep(1)
        # Whatever the handshakes left behind.
        time.sleep(5)
        print(f"{count} connections, {(memory(process.pid) - before) / count:.1f} KiB each")
        threads = [
            thread.name
            for thread in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
            if (thread / "comm").read_text().startswith("worker-")
        ]
        assert len(threads) == 2, threads
        for query in QUESTIONS:
            found, lists = turns(threads, query, admin, path)
            asked = f"/clients?{query}, {len(lists)} lists" if query else "no question"
            assert all(connections == count for connections in lists), lists
            print(f"{asked}: {len(found)} turns, median {statistics.median(found):.3f}, longest {', '.join(f'{turn:.2f}' for turn in sorted(found)[-5:])}", flush=True)
        del over_tcp


def memory(pid):
    """KiB that are resident."""
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
