#!/usr/bin/env python3
"""Relays the datagrams of 127.0.0.1:PORT to 127.0.0.1:TO, those of each client from a port of its own, as a balancer does.

usage: relay.py PORT TO [--header]; with --header each datagram to TO begins with a header of the PROXY protocol
"""

import selectors
import socket
import sys

MAX_CLIENTS = 64
# Version 2, command PROXY, IPv4 and UDP, 12 bytes of addresses and ports.
BEGINNING = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c"


def datagram_socket():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    made.setblocking(False)
    return made


def header_of(client, to):
    ends = socket.inet_aton(client[0]) + socket.inet_aton(to[0])
    return BEGINNING + ends + client[1].to_bytes(2, "big") + to[1].to_bytes(2, "big")


def main(port, to, has_header):
    to = ("127.0.0.1", to)
    front = datagram_socket()
    front.bind(("127.0.0.1", port))
    flows, events = {}, selectors.DefaultSelector()
    events.register(front, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            try:
                if key.data:
                    front.sendto(key.fileobj.recv(65535), key.data)
                    continue
                datagram, client = front.recvfrom(65535)
                if client not in flows and len(flows) < MAX_CLIENTS:
                    flow = datagram_socket()
                    flow.connect(to)
                    events.register(flow, selectors.EVENT_READ, client)
                    flows[client] = flow, header_of(client, to) if has_header else b""
                if client in flows:
                    flow, header = flows[client]
                    flow.send(header + datagram)
            except (BlockingIOError, ConnectionRefusedError):
                pass  # a datagram is lost


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["--header"])
