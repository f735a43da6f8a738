#!/usr/bin/env python3
"""What a download costs client and server over a fast link, by HTTP/2 and HTTP/3: curl, Chromium and `litequic get`, from litequic, nginx
and Caddy, one download at a time. The link is a veth pair with MTU 1500 between two network namespaces, to which the kernel's token bucket
(tc-tbf(8)) gives its rate; client on one core, server and origin on the other. Prints a line for each download.

usage: benches/downloads.py [--rounds 3] [--rates 300,1000] [--megabytes 200] [--clients curl,chromium,get]
                            [--servers litequic,nginx,caddy] [--buffers 212992] [PROGRAM]

`client s/GB` and `server s/GB` are CPU time of their processes, without soft interrupts that ran while they did not. `core %` is how much of
its core the client's side was busy: at 95 % and more the client is what limits. `drops` are datagrams that the client's sockets dropped,
`packets` what its device received. Needs the programs, with HTTP/3 in nginx and curl (`--path` is searched first), iproute2, openssl and root.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from programs import Cgroup, Chromium, receive_buffers, spki

SERVER, CLIENT = "192.0.2.1", "192.0.2.2"
PORTS = {"litequic": 24000, "nginx": 24001, "caddy": 24002}
ORIGIN = 24010
# Longer than any download of a working pair.
PATIENCE = 120


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Link:
    """Two namespaces and a link between them, until it is closed."""

    def __init__(self):
        self.server, self.client = (f"downloads-{os.getpid()}-{side}" for side in ["server", "client"])
        for name in [self.server, self.client]:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "mtu", "1500", "up")
        run("ip", "-n", self.server, "link", "add", "wire", "mtu", "1500", "type", "veth", "peer", "name", "wire", "mtu", "1500", "netns", self.client)
        for name, address, core in [(self.server, SERVER, 0), (self.client, CLIENT, 1)]:
            run("ip", "-n", name, "addr", "add", f"{address}/30", "dev", "wire")
            run("ip", "-n", name, "link", "set", "wire", "up")
            run("ip", "netns", "exec", name, "sh", "-c", f"echo {1 << core:x} >/sys/class/net/wire/queues/rx-0/rps_cpus")

    def set_rate(self, mbit):
        """A megabit of burst, and 100 ms of the rate as buffer: more than ten bandwidth-delay products."""
        with contextlib.suppress(subprocess.CalledProcessError):
            run("tc", "-n", self.server, "qdisc", "del", "dev", "wire", "root")
        if mbit:
            run("tc", "-n", self.server, "qdisc", "add", "dev", "wire", "root", "tbf", "rate", f"{mbit}mbit", "burst", "125kb", "latency", "100ms")

    def received(self):
        """Packets that the client's device received."""
        return int(run("ip", "netns", "exec", self.client, "cat", "/sys/class/net/wire/statistics/rx_packets"))

    def dropped(self):
        """Datagrams that the client's sockets dropped."""
        snmp = run("ip", "netns", "exec", self.client, "cat", "/proc/net/snmp").splitlines()
        names, values = (line.split()[1:] for line in snmp if line.startswith("Udp: "))
        return int(dict(zip(names, values))["RcvbufErrors"])

    def close(self):
        for name in [self.server, self.client]:
            subprocess.run(["ip", "netns", "del", name], check=False)


def busy(core):
    """Seconds for which a core was busy."""
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == f"cpu{core}":
            ticks = [int(word) for word in words[1:9]]
            return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    raise RuntimeError(f"no core {core}")


def servers(work, program, find, certificate, key):
    """Command lines of the origin and of the servers, whose files go to `work`."""
    temporary = lambda name: "".join(f"{kind}_temp_path {work}/{name}-{kind}; " for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    head = lambda name: f"daemon off; master_process off; pid {work}/{name}.pid; error_log stderr; events {{ worker_connections 1024; }}\n"
    (work / "origin.conf").write_text(
        head("origin") + f"http {{ access_log off; sendfile on; {temporary('origin')} server {{ listen 127.0.0.1:{ORIGIN}; root {work}/root; }} }}\n")
    (work / "nginx.conf").write_text(head("nginx") + f"""http {{
    access_log off; {temporary('nginx')}
    upstream origin {{ server 127.0.0.1:{ORIGIN}; keepalive 32; }}
    server {{
        listen {SERVER}:{PORTS['nginx']} quic; listen {SERVER}:{PORTS['nginx']} ssl; http2 on; quic_gso on;
        ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
        location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_max_temp_file_size 0; }}
    }}
}}
""")
    (work / "Caddyfile").write_text(f"""{{
    admin off
    auto_https off
    persist_config off
}}
https://:{PORTS['caddy']} {{
    bind {SERVER}
    tls {certificate} {key}
    reverse_proxy 127.0.0.1:{ORIGIN} {{
        transport http {{
            compression off
        }}
    }}
}}
""")
    (work / "litequic.toml").write_text(f"""[listen]
udp = "{SERVER}:{PORTS['litequic']}"
workers = 1
[[certificates]]
cert = "{certificate}"
key = "{key}"
[origin]
url = "http://127.0.0.1:{ORIGIN}"
""")
    return {
        "origin": ["nginx", "-e", "stderr", "-c", work / "origin.conf"],
        "nginx": [find("nginx"), "-e", "stderr", "-c", work / "nginx.conf"],
        "caddy": [find("caddy"), "run", "--config", work / "Caddyfile", "--adapter", "caddyfile"],
        "litequic": [program, "run", "--config", work / "litequic.toml", "--log-level", "warn"],
    }


def by_chromium(chromium, prefix, work, url, protocol, key, cgroup, megabytes):
    """Downloads to a file: yields before it begins, and then the seconds from the click to the last byte."""
    port = url.split(":")[2].split("/")[0]
    options = [f"--ignore-certificate-errors-spki-list={key}", f"--host-resolver-rules=MAP localhost {SERVER}, MAP * ~NOTFOUND"]
    options += [f"--origin-to-force-quic-on=localhost:{port}"] if protocol == "h3" else ["--disable-quic"]
    # Fresh: a page in the cache was another protocol's.
    profile, folder = work / "profile", work / "downloads"
    for one in [profile, folder]:
        shutil.rmtree(one, ignore_errors=True)
        one.mkdir()
    browser = Chromium(chromium, profile, options, prefix=prefix, join=cgroup.join)
    try:
        browser.open(url.rsplit("/", 1)[0] + "/page")
        browser.wait_for("document.readyState === 'complete' && location.href.startsWith('https')")
        if (protocol_seen := browser.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")) != protocol:
            raise RuntimeError(f"Chromium used {protocol_seen}")
        browser.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
        yield
        began = time.monotonic()
        browser.evaluate(f"const link = document.createElement('a'); link.href = '{url}'; link.download = 'large'; link.click()")
        file = folder / "large"
        # Chromium writes under another name until all is there.
        while not file.exists() or file.stat().st_size < megabytes * 1_000_000:
            if time.monotonic() > began + PATIENCE:
                raise RuntimeError("Chromium did not end its download")
            time.sleep(0.01)
        yield time.monotonic() - began
    finally:
        browser.close()
        shutil.rmtree(folder, ignore_errors=True)


def by_program(command, prefix, cgroup):
    """Downloads by a program that writes to a file: yields before it begins, and then the seconds that it ran."""
    yield
    began = time.monotonic()
    process = subprocess.Popen([*prefix, *command], preexec_fn=cgroup.join, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(errors.strip() or out.strip())
    yield time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=lambda text: [int(one) for one in text.split(",")], default=[300, 1000], help="Mbit/s; 0: no limit")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--clients", type=listed, default=["curl", "chromium", "get"])
    parser.add_argument("--servers", type=listed, default=["litequic", "nginx", "caddy"])
    parser.add_argument("--buffers", type=int, default=212_992, help="net.core.rmem_max while it runs")
    parser.add_argument("--path", default="/opt/peers/bin", help="where programs are looked for first")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("program", nargs="?", default="target/release/litequic", metavar="PROGRAM")
    arguments = parser.parse_args()
    find = lambda name: shutil.which(name, path=f"{arguments.path}:{os.environ['PATH']}:/usr/sbin") or name
    with contextlib.ExitStack() as ends:
        ends.enter_context(receive_buffers(arguments.buffers))
        work = pathlib.Path(ends.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        work.chmod(0o755)
        (work / "root").mkdir()
        with (work / "root" / "large").open("wb") as file:
            for _ in range(arguments.megabytes):
                file.write(os.urandom(1_000_000))
        (work / "root" / "page").write_text("<!doctype html><title>page</title>")
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-keyout", work / "key.pem", "-out", work / "cert.pem")
        link = Link()
        ends.callback(link.close)
        groups = {}
        for name, command in servers(work, arguments.program, find, work / "cert.pem", work / "key.pem").items():
            if name != "origin" and name not in arguments.servers:
                continue
            groups[name] = Cgroup(name)
            ends.callback(groups[name].close)
            process = subprocess.Popen(["ip", "netns", "exec", link.server, "taskset", "--cpu-list", "0", *command], preexec_fn=groups[name].join,
                                       env=os.environ | {"GOMAXPROCS": "1"}, stdout=subprocess.DEVNULL, stderr=(work / f"{name}.log").open("w"))
            ends.callback(process.wait, 30)
            ends.callback(process.terminate)
        time.sleep(2)
        prefix = ["ip", "netns", "exec", link.client, "taskset", "--cpu-list", "1"]
        print(f"{'Mbit/s':>6} {'client':9} {'server':9} {'':4} {'reached':>8} {'client s/GB':>11} {'server s/GB':>11} {'core %':>7} {'drops':>6} {'packets':>8}")
        found = {}
        for _ in range(arguments.rounds):
            for rate in arguments.rates:
                link.set_rate(rate)
                for client in arguments.clients:
                    for server in arguments.servers:
                        for protocol in ["h2", "h3"]:
                            if client == "get" and protocol == "h2" or server == "caddy" and protocol == "h2":
                                continue
                            url = f"https://localhost:{PORTS[server]}/large"
                            group = Cgroup("client")
                            try:
                                if client == "chromium":
                                    steps = by_chromium(arguments.chromium, prefix, work, url, protocol, spki(work / "cert.pem"), group, arguments.megabytes)
                                elif client == "curl":
                                    steps = by_program([find("curl"), "--silent", "--show-error", "--fail", "--http2" if protocol == "h2" else "--http3-only",
                                                        "--cacert", work / "cert.pem", "--connect-to", f"localhost:{PORTS[server]}:{SERVER}:{PORTS[server]}",
                                                        "--output", work / "got", url], prefix, group)
                                else:
                                    steps = by_program([arguments.program, "get", "--ca", work / "cert.pem", "--resolve", f"localhost:{PORTS[server]}:{SERVER}",
                                                        "--output", work / "got", url], prefix, group)
                                next(steps)
                                counts = lambda: [group.cpu(), groups[server].cpu(), busy(1), link.received(), link.dropped()]
                                before = counts()
                                seconds = next(steps)
                                after = counts()
                                steps.close()
                            except (RuntimeError, subprocess.TimeoutExpired) as error:
                                print(f"{rate:6} {client:9} {server:9} {protocol:4} {error}", flush=True)
                                continue
                            finally:
                                group.close()
                                (work / "got").unlink(missing_ok=True)
                            of_client, of_server, core, packets, dropped = (new - old for new, old in zip(after, before))
                            gigabytes = arguments.megabytes / 1000
                            line = (8 * arguments.megabytes / seconds, of_client / gigabytes, of_server / gigabytes, 100 * core / seconds, dropped, packets)
                            found.setdefault((rate, client, server, protocol), []).append(line)
                            show(rate, client, server, protocol, line)
        print("medians")
        for cell, lines in found.items():
            show(*cell, [statistics.median(values) for values in zip(*lines)])


def show(rate, client, server, protocol, line):
    reached, of_client, of_server, core, dropped, packets = line
    print(f"{rate:6} {client:9} {server:9} {protocol:4} {reached:8.0f} {of_client:11.2f} {of_server:11.2f} {core:7.0f} {dropped:6.0f} {packets:8.0f}", flush=True)


if __name__ == "__main__":
    main()
