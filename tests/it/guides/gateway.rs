//! docs/how-to/add-http3-before-a-kubernetes-gateway.md: the configuration that the chart makes of its values, in front of
//! an nginx that stands for the controller.

use super::{Guide, adapted, machine::Machine};
use crate::support::prelude::*;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The controller: it redirects requests for another scheme than https, and trusts the fields of litequic.
const CONTROLLER: &str = "events {}\nhttp { server {\n\
    listen 127.0.0.1:8080;\n\
    if ($http_x_forwarded_proto != https) { return 308 https://$host$request_uri; }\n\
    location / { add_header Alt-Svc clear; return 200 '$host $http_x_forwarded_for\\n'; }\n} }\n";

#[test]
fn the_example_is_the_guides_and_its_configuration_serves() {
    let [Some(helm), Some(_), Some(_)] = ["helm", "curl", "nginx"].map(needs::program) else { return };
    let guide = Guide::read("add-http3-before-a-kubernetes-gateway");
    let values = format!("{ROOT}/helm/examples/gateway.yaml");
    let example = fs::read_to_string(&values).unwrap();
    let (_, example) = example.split_once("config:\n").unwrap();
    let shown = guide.block("yaml", "externalTrafficPolicy");
    assert_eq!(shown, format!("config:\n{example}"));

    let folder = tempfile::tempdir().unwrap();
    let command = guide.command("helm template").replace("./helm/litequic", &format!("{ROOT}/helm/litequic"));
    let command = command.replace("values.yaml", &values);
    let mut words = command.split_whitespace().skip(1);
    let mut template = Command::new(helm);
    template.args(words.by_ref()).args(["--kube-version", "1.31.0"]).current_dir(folder.path());
    for name in ["CACHE", "CONFIG", "DATA"] {
        template.env(format!("HELM_{name}_HOME"), folder.path().join(name));
    }
    let output = template.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout).unwrap();
    let (_, file) = rendered.split_once("  litequic.toml: |\n").unwrap();
    let lines = file.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let configuration: String = lines.map(|line| format!("{}\n", line.trim_start_matches("    "))).collect();

    let Some(machine) = Machine::with_certificate(&["www.example.com", "web-istio.default.svc"]) else { return };
    // As the Secret is mounted.
    machine.run("mkdir -p /etc/litequic/tls; cd /etc/litequic; cp tls.crt tls/example-com-tls.crt; cp tls.key tls/example-com-tls.key");
    machine.write("/etc/nginx/nginx.conf", CONTROLLER);
    let _controller = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    // In a pod the redirect has port 8080 for itself.
    let configuration = adapted(&configuration, &[("[::]:8080", "[::]:8081")]);
    let _litequic = machine.litequic(&configuration);
    let get = guide.command("litequic get").replace(":443", ":8443").replace("192.0.2.1", "127.0.0.1");
    let head = machine.run(&adapted(&get, &[("https://www.example.com/", "https://www.example.com:8443/")]));
    assert!(head.starts_with("HTTP/3 200"), "{head}");
    let over_tcp = machine.run("curl --silent --include https://www.example.com:8443/");
    assert!(over_tcp.ends_with("\r\n\r\nwww.example.com 127.0.0.1\n"), "{over_tcp}");
    assert!(over_tcp.contains("alt-svc: h3=\":443\""), "{over_tcp}");
    let redirect = machine.run("curl --silent --head http://www.example.com:8081/a").to_lowercase();
    assert!(redirect.contains("location: https://www.example.com/a"), "{redirect}");
}
