"""An independent HTTP/3 client against `litequic demo`: python aioquic.py PORT [FILE].

Prints a line for each check; ends with status 1 at the first that fails. FILE gets aioquic's own log of the connection (qlog), and the
token of the Retry packet that it has received.
"""

import sys

# This file's folder would hide the library, whose name is this file's.
sys.path.pop(0)

import asyncio
import json
import ssl

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset
from aioquic.quic.logger import QuicLogger

# Of all checks together, in seconds.
DEADLINE = 45
IMAGES = 24


class Exchange:
    """One request and what has come of its response."""

    def __init__(self):
        self.headers = []  # a list of fields for each HEADERS frame
        self.body = bytearray()
        self.done = asyncio.get_running_loop().create_future()

    @property
    def status(self):
        return int(dict(self.headers[-1])[b":status"])


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.exchanges = {}

    def begin(self, authority, method, path, *fields, body=None):
        stream = self._quic.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "https"), (":authority", authority), (":path", path)]
        encoded = [(name.encode(), value.encode()) for name, value in [*pseudo, *fields]]
        self.http.send_headers(stream, encoded, end_stream=body is None)
        if body is not None:
            # Several DATA frames of odd sizes.
            for start in range(0, len(body), 7919):
                self.http.send_data(stream, body[start : start + 7919], end_stream=False)
            self.http.send_data(stream, b"", end_stream=True)
        exchange = self.exchanges[stream] = Exchange()
        self.transmit()
        return exchange.done

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            for exchange in self.exchanges.values():
                self.fail(exchange, f"connection ended: {event}")
        if isinstance(event, StreamReset) and event.stream_id in self.exchanges:
            self.fail(self.exchanges[event.stream_id], f"stream reset: {event}")
        for event in self.http.handle_event(event):
            exchange = self.exchanges.get(event.stream_id)
            if exchange is None:
                continue
            if isinstance(event, HeadersReceived):
                exchange.headers.append(event.headers)
            if isinstance(event, DataReceived):
                exchange.body += event.data
            if event.stream_ended and not exchange.done.done():
                exchange.done.set_result(exchange)

    @staticmethod
    def fail(exchange, why):
        if not exchange.done.done():
            exchange.done.set_exception(RuntimeError(why))


def pattern(length):
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def check(what, got, expected):
    if got != expected:
        shown = [value if not isinstance(value, (bytes, bytearray)) else f"{len(value)} bytes" for value in (got, expected)]
        sys.exit(f"{what}: {shown[0]} instead of {shown[1]}")
    print(f"ok: {what}")


async def checks(port, log=None):
    authority = f"localhost:{port}"
    # The demo's certificate is made on the spot: no client trusts it.
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, server_name="localhost", verify_mode=ssl.CERT_NONE, quic_logger=QuicLogger()
    )
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:

        def ask(*request, **body):
            return client.begin(authority, *request, **body)

        page = await ask("GET", "/")
        check("the page's status", page.status, 200)
        check("the page is the demo's", b"<title>litequic demo</title>" in page.body, True)

        images = await asyncio.gather(*(ask("GET", f"/image/{number}.svg") for number in range(IMAGES)))
        check("images at once", [image.status for image in images], [200] * IMAGES)
        check("images are whole", all(image.body.endswith(b"</svg>") for image in images), True)

        download = await ask("GET", "/bytes/3000017")
        check("a download's length field", dict(download.headers[0])[b"content-length"], b"3000017")
        check("a download", download.body, pattern(3_000_017))

        upload = pattern(1_000_003)
        echo = await ask("POST", "/echo", ("content-length", str(len(upload))), body=upload)
        check("an upload of known length, echoed", (echo.status, echo.body), (200, upload))
        echo = await ask("POST", "/echo", body=upload)
        check("an upload of unknown length, echoed", (echo.status, echo.body), (200, upload))
        echo = await ask("POST", "/echo", body=b"")
        check("an empty upload, echoed", (echo.status, echo.body), (200, b""))

        # No HEAD: aioquic takes its answer's Content-Length for that of the body that came.
        hinted = await ask("GET", "/early-hints")
        check("103 comes first", [dict(fields)[b":status"] for fields in hinted.headers], [b"103", b"200"])
        trailed = await ask("GET", "/trailers", ("te", "trailers"))
        check("trailers come last", trailed.headers[-1], [(b"x-demo-trailer", b"the end")])
        missing = await ask("GET", "/nowhere")
        check("an origin's 404", missing.status, 404)


    if log:
        with open(log, "w") as file:
            json.dump({"trace": configuration.quic_logger.to_dict()["traces"][0], "token": client._quic._peer_token.hex()}, file)


asyncio.run(asyncio.wait_for(checks(int(sys.argv[1]), *sys.argv[2:]), DEADLINE))
