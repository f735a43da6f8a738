//! docs/how-to/record-a-connection.md: connections are recorded by its commands, and read.

use super::{Guide, adapted, machine::Machine};
use crate::support::needs;

/// The guide's file as a folder of the machine has it, and its client.
fn here(command: &str) -> String {
    command.replace("/tmp/", "/root/").replace("203.0.113.7", "127.0.0.1")
}

#[test]
fn connections_are_recorded_and_read_by_the_guides_commands() {
    let Some(()) = needs::programs(&["jq", "nginx", "curl"]) else { return };
    let guide = Guide::read("record-a-connection");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    // A download takes seconds.
    let server = "server { listen 127.0.0.1:8080; root /var/www; limit_rate 1m; }";
    machine.write("/etc/nginx/nginx.conf", &format!("events {{}}\nhttp {{ {server} }}\n"));
    machine.run("mkdir -p /var/www; head -c 5000000 /dev/zero >/var/www/large");
    let _origin = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null --head http://127.0.0.1:8080/large");
    let _litequic = machine.litequic(&guide.block("toml", "udp = "));

    let tested = machine.run(&here(&guide.block("bash", "/tmp/test.sqlog")));
    let (_, events) = tested.split_once("/root/test.sqlog: ").unwrap_or_else(|| panic!("{tested}"));
    assert!(events.ends_with(" events\n"), "{events}");
    assert_eq!(machine.run("stat --format %a /root/test.sqlog"), "600\n");

    let names = machine.run(&adapted(&guide.command("uniq --count"), &[("/tmp/client.sqlog", "/root/test.sqlog")]));
    assert!(names.contains(" quic:packet_sent\n") && names.contains("1 litequic:log_ended\n"), "{names}");
    let windows = machine
        .run(&adapted(&guide.command("congestion_window // empty"), &[("/tmp/client.sqlog", "/root/test.sqlog")]));
    assert!(windows.lines().count() > 2, "{windows}");

    // qvis looks at these members (visualizations/src/data of its sources).
    machine.run(&adapted(&here(&guide.block("bash", "qlog_version")), &[("/root/client.sqlog", "/root/test.sqlog")]));
    let is_older = |condition: &str| {
        let all = format!("jq --seq --slurp --exit-status '{condition}' /root/qvis.sqlog");
        machine.run(&all);
    };
    is_older(
        ".[0] | .qlog_version == \"0.3\" and .qlog_format == \"JSON-SEQ\" and .trace.vantage_point.type == \"server\"",
    );
    is_older(".[1:] | all(.name | test(\"^(transport|recovery|litequic):\"))");
    is_older("map(select(.name == \"transport:packet_sent\")) | length > 100 and all(.data.raw.length > 0)");
    is_older("[.[].data.frames[]? | select(.frame_type == \"stream\").length] | add >= 5000000");
    is_older("any(.name == \"recovery:metrics_updated\" and .data.congestion_window > 0)");
    is_older("map(select(.name == \"transport:parameters_set\").data.owner) == [\"local\", \"remote\"]");

    // Of a connection that is open: each, one, and to standard output.
    let _download = machine.spawn("exec litequic get --output /dev/null https://example.com:8443/large");
    machine.wait("litequic ctl clients --json | jq --exit-status '.clients[0].open == 1' >/dev/null");
    let listed = machine.run(&guide.command("--sort loss"));
    let client = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(client.starts_with("127.0.0.1:"), "{listed}");
    let brief = [("--seconds 30", "--seconds 1")];
    machine.run(&adapted(&here(&guide.command("--seconds 30")), &brief));
    let one = guide.command("/tmp/one.sqlog").replace("203.0.113.7:50112", client);
    machine.run(&adapted(&here(&one), &[("qlog ", "qlog --seconds 1 ")]));
    let lost = adapted(&here(&guide.command("203.0.113.7 | jq")), &[("| jq", "--seconds 1 | jq")]);
    machine.run(&lost);
}
