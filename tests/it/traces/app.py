"""A WSGI application with OpenTelemetry's own instrumentation, which sends its spans to the collector at argv[1]."""

import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")))


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def serve(_, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


app = OpenTelemetryMiddleware(serve, tracer_provider=provider)
with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
