//! docs/how-to/proxy-grpc.md: calls by curl, before a server that stands for one of Connect, and without it.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

/// Answers a call with the JSON that it got.
const SERVER: &str = "import http.server
class Calls(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(('127.0.0.1', 8081), Calls).serve_forever()
";

#[test]
fn a_call_is_answered_by_its_server_or_in_grpcs_words() {
    let Some(()) = needs::programs(&["curl", "python3"]) else { return };
    let guide = Guide::read("proxy-grpc");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    machine.run("mkdir -p /var/log/litequic");
    // Python's server has HTTP/1.1 alone, for which a server of Connect needs no key.
    let _litequic = machine.litequic(&guide.block("toml", "[origins.calls]").replace("protocol = \"h2\"\n", ""));
    let refused = machine.run(&guide.command("application/grpc"));
    assert!(refused.starts_with("HTTP/2 200") && refused.contains("\ngrpc-status: 14\r\n"), "{refused}");
    machine.wait("grep -q 'grpc_status.*14' /var/log/litequic/access.log");
    machine.wait("litequic ctl metrics | grep -q '^litequic_grpc_responses_total{.*code=\"14\"} 1'");
    machine.write("/root/calls.py", SERVER);
    let _server = machine.spawn("exec python3 /root/calls.py");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8081/");
    assert_eq!(machine.run(&guide.command("application/json")), "{\"text\": \"hello\"}");
}
