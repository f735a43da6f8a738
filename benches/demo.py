#!/usr/bin/env python3
"""What viewers of the demo's page see, and what it costs the servers: so many viewers of each server in one Chromium, each server
with its quota of CPU time, as `CPUS=0.1 docker compose up` has it, but without Docker. Prints a line for each server and round.

usage: benches/demo.py [--rounds 5] [--seconds 90] [--viewers 20] [--cpus 0.1] [--period 100] [--only litequic,plain,nginx]
                       [--picture FILE] [PROGRAM...]

With several programs each is measured in turn. While it runs, net.core.rmem_max has the kernel's default. Needs nginx, openssl, ffmpeg,
npm, Chromium, cgroups and root. What it fetches and makes stays in target/demo.
"""

import argparse
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

from programs import Cgroup, Chromium, drops, receive_buffers, spki

DEMO = pathlib.Path(__file__).resolve().parent.parent / "demo"
WORK = DEMO.parent / "target" / "demo"
WAYS = ["litequic", "plain", "nginx"]


def made(folder, command):
    """Makes a folder under another name first: an existing one is complete."""
    if not folder.exists():
        new = folder.with_name(folder.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        subprocess.run([command[0], str(new), *command[1:]], check=True)
        new.rename(folder)
    return folder


def counters(port):
    """What one litequic has counted: packets sent and declared lost."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    total = lambda name: sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))
    return total("litequic_packets_sent_total"), total("litequic_packets_lost_total")


SEEN = """[...crowds].map(([way, { viewers }]) => { viewers.forEach(viewer => viewer.look()); const sum = of => viewers.reduce((sum, one) => sum + of(one), 0);
  return { way, kilobits: sum(one => one.kilobits), loaded: sum(one => one.loaded), stands: sum(one => one.stands), played: sum(one => one.played),
    top: sum(one => Number(one.quality === one.ladder.length - 1)), errors: viewers.map(one => one.error).filter(Boolean) } })"""


def measure(arguments, program, numbers, certificate, folders):
    """One round: a line for each server."""
    with tempfile.TemporaryDirectory() as run, contextlib.ExitStack() as ends:
        run = pathlib.Path(run)
        run.chmod(0o755)
        ports = dict(zip(WAYS, numbers))
        metrics = dict(zip(WAYS, [numbers[3], numbers[4]]))
        environment = os.environ | {
            "ORIGIN_LISTEN": f"unix:{run}/nginx.sock", "NGINX_LISTEN": f"127.0.0.1:{ports['nginx']}", "PAGE": str(DEMO / "page"),
            "DASH": str(folders["dash"]), "MEDIA": str(folders["media"]), "TLS": str(certificate), "RESOLVER": "", "ORIGIN": f"unix:{run}/nginx.sock",
            **{f"{way.upper()}_PORT": str(port) for way, port in ports.items()},
            "LITEQUIC_METRICS": f"127.0.0.1:{metrics['litequic']}", "PLAIN_METRICS": f"127.0.0.1:{metrics['plain']}"}
        servers = subprocess.run([DEMO / "site.sh"], env=environment, check=True, capture_output=True, text=True).stdout
        origin, _, tls = servers.partition("# What one has without litequic")

        def start(command, extra=None, cgroup=None):
            process = subprocess.Popen(command, env=environment | (extra or {}), preexec_fn=cgroup and cgroup.join,
                                       stdout=subprocess.DEVNULL, stderr=(run / "errors").open("a"))
            ends.callback(process.wait, 60)
            ends.callback(process.terminate)
            return process

        cgroups = {}
        for way in WAYS:
            cgroups[way] = Cgroup(way, arguments.cpus, arguments.period)
            ends.callback(cgroups[way].close)
        for name, text, cgroup in [("origin", origin, None), ("nginx", "# " + tls, cgroups["nginx"])]:
            own = run / name
            own.mkdir()
            temporary = "".join(f"{kind}_temp_path {own}/{kind}; " for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
            (own / "nginx.conf").write_text(
                f"daemon off; master_process off; pid {own}/pid; error_log stderr; events {{ worker_connections 512; }}\n"
                f"http {{ access_log off; {temporary}\n{text}\n}}\n")
            start(["nginx", "-c", own / "nginx.conf", "-e", "stderr"], cgroup=cgroup)
        for way, file, admin in [("litequic", "on", numbers[5]), ("plain", "off", numbers[6])]:
            probes = f"127.0.0.1:{metrics[way]}"
            extra = {"LISTEN": f"127.0.0.1:{ports[way]}", "PROBES": probes, "LITEQUIC_ADMIN": f"127.0.0.1:{admin}"}
            start([program, "run", "--config", DEMO / "litequic" / f"{file}.toml", "--log-level", "warn"], extra, cgroups[way])

        time.sleep(3)
        quic = ",".join(f"localhost:{ports[way]}" for way in ["litequic", "plain"])
        browser = Chromium(arguments.chromium, run / "profile", [
            f"--origin-to-force-quic-on={quic}", f"--ignore-certificate-errors-spki-list={spki(certificate / 'tls.crt')}",
            "--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND"])
        ends.callback(browser.close)
        browser.open(f"https://localhost:{ports[arguments.only[0]]}/")
        browser.wait_for("document.readyState === 'complete' && crowds.size === 3 && video.duration > 1 && player.getRepresentationsByType('video').length > 0")
        if arguments.alone:
            # The page's own video would take its share of the quota.
            browser.evaluate("player.reset(), 0")
        for way in set(WAYS) - set(arguments.only):
            browser.evaluate(f"crowds.delete('{way}')")

        def counts():
            return {way: (*(counters(metrics[way]) if way in metrics else (0, 0)), cgroups[way].cpu()) for way in arguments.only}

        before = counts()
        dropped = drops(ports.values())
        browser.evaluate(f"at('count').value = {arguments.viewers}, at('watch').click()")
        time.sleep(arguments.seconds)
        seen = browser.evaluate(SEEN)
        if arguments.picture:
            browser.call("Emulation.setDeviceMetricsOverride", {"width": 1200, "height": 1160, "deviceScaleFactor": 1, "mobile": False}, browser.session)
            browser.evaluate("at('crowd').scrollIntoView()")
            time.sleep(2)
            picture = browser.call("Page.captureScreenshot", {}, browser.session)["data"]
            pathlib.Path(arguments.picture).write_bytes(base64.b64decode(picture))
        after = counts()
        dropped = {port: count - dropped[port] for port, count in drops(ports.values()).items()}
        lines = []
        for one in seen:
            way = one["way"]
            sent, lost, cpu = (new - old for new, old in zip(after[way], before[way]))
            lines.append({
                "way": way, "mbit": one["kilobits"] / max(one["loaded"], 1) / 1000, "stands": 100 * one["stands"] / max(one["stands"] + one["played"], 0.001),
                "top": one["top"], "cpu": cpu, "cpu_gb": cpu / max(one["kilobits"] * 2 / 8 / 1e6, 1e-9), "lost": 100 * lost / sent if sent else 0,
                "drops": 100 * dropped[ports[way]] / sent if sent else 0, "errors": one["errors"]})
        return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--cpus", type=float, default=0.1)
    parser.add_argument("--period", type=int, default=100, help="of the quota, in ms")
    parser.add_argument("--only", type=lambda text: text.split(","), default=WAYS)
    parser.add_argument("--alone", action="store_true", help="without the page's own video")
    parser.add_argument("--port", type=int, default=23000, help="the first of seven")
    parser.add_argument("--length", type=int, default=60, help="seconds of video")
    parser.add_argument("--picture", metavar="FILE", help="the page at the end, PNG")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("programs", nargs="*", default=["target/release/litequic"], metavar="PROGRAM")
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    dash_id = subprocess.run(["cksum"], stdin=(DEMO / "dash.sh").open(), capture_output=True, text=True, check=True).stdout.split()[0]
    folders = {"media": made(WORK / f"media-{arguments.length}", [DEMO / "ladder.sh", str(arguments.length)]),
               "dash": made(WORK / f"dash-{dash_id}", [DEMO / "dash.sh"])}
    print(f"{'program':24} {'server':9} {'Mbit/s':>7} {'stalled %':>9} {'at top':>6} {'CPU s':>6} {'s/GB':>6} {'lost %':>7} {'drops %':>7}")
    with receive_buffers(212_992), tempfile.TemporaryDirectory() as tls:
        tls = pathlib.Path(tls)
        tls.chmod(0o755)
        subprocess.run([DEMO / "certificate.sh", tls / "tls"], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"LITEQUIC_PORT": "1", "PLAIN_PORT": "2", "NGINX_PORT": "3"})
        for _ in range(arguments.rounds):
            for program in arguments.programs:
                numbers = list(range(arguments.port, arguments.port + 7))
                for line in measure(arguments, program, numbers, tls / "tls", folders):
                    name = "/".join(pathlib.Path(program).parts[-2:])
                    print(f"{name:24} {line['way']:9} {line['mbit']:7.2f} {line['stands']:9.2f} {line['top']:6} {line['cpu']:6.1f} {line['cpu_gb']:6.2f} "
                          f"{line['lost']:7.2f} {line['drops']:7.2f} {' '.join(sorted(set(line['errors'])))}", flush=True)


if __name__ == "__main__":
    main()
