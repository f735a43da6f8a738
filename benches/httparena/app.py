#!/usr/bin/env python3
"""Stands in for the board's server in try.sh: the same paths, with numbers of its own. Not for measurements.

usage: app.py PORT
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def item(number: int) -> dict:
    fields = {"id": number, "name": f"item {number}", "category": "tools", "price": 3 * number, "quantity": number}
    return fields | {"active": True, "tags": ["new"], "rating": {"score": 4, "count": number}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        query = {name: int(values[0]) for name, values in parse_qs(target.query).items()}
        if target.path == "/baseline2":
            return self.answer("text/plain", str(query["a"] + query["b"]))
        if target.path.startswith("/json/"):
            items = [item(number) for number in range(1, int(target.path[6:]) + 1)]
            items = [each | {"total": each["price"] * each["quantity"]} for each in items]
            return self.answer("application/json", json.dumps({"count": len(items), "items": items}))
        if target.path == "/async-db":
            rows = [item(price) for price in range(query["min"], min(query["max"], 1000) + 1)][: query.get("limit", 50)]
            return self.answer("application/json", json.dumps({"count": len(rows), "items": rows}))
        return self.answer("text/plain", "", 404)

    def answer(self, kind: str, text: str, status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer.request_queue_size = 4096
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
