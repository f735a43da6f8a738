"""A WSGI server of the standard library, whose application says what it took a path for and by which route it came."""

from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def serve(environ, start_response):
    path = environ["PATH_INFO"]
    protected = any(path == prefix or path.startswith(prefix + "/") for prefix in ("/admin", "/v1/login"))
    body = f"{'protected' if protected else 'open'} {environ.get('HTTP_X_ROUTE', 'none')}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


with make_server("127.0.0.1", 0, serve, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
