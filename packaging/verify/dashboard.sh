#!/usr/bin/env bash
# dashboard.sh [PROGRAM]: a Prometheus scrapes litequic under load and with faults, reads the charts' rules, and answers each query of the
# dashboard; none may have nothing to show. Where there is npm, the dashboard is also compared with the types that Grafana has of it.
# Needs prometheus (Debian has it), curl, openssl and python3. PROGRAM is target/release/litequic unless said otherwise. Leaves nothing
# behind.
program=$(realpath "${1:-$(dirname "$0")/../../target/release/litequic}")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

dashboard=$(realpath ../../helm/litequic-sidecar/files/dashboard.json)

started=()
end() {
    local pid
    for pid in "${started[@]+"${started[@]}"}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap end EXIT
# background NAME COMMAND...: its output in NAME.log.
background() {
    local name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 &
    started+=($!)
}

# Ports that are free: litequic's, its metrics', Prometheus', and one whose server never answers.
read -r port probes prometheus silent < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(each.getsockname()[1] for each in sockets))')
certificate tls localhost

# Without io_uring, as in a container: a feature that a configuration asks for and the kernel refuses.
cat >"$work/without_io_uring.py" <<'PYTHON'
import ctypes
import os
import struct
import sys

IO_URING_SETUP, EPERM = 425, 1
# The number of the system call; EPERM for that one, and the others as they are (BPF_LD, BPF_JEQ, BPF_RET).
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, 0x00050000 | EPERM), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("=HBBI", *rule) for rule in rules)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("@HP", len(rules), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
for arguments in [(38, 1, 0, 0, 0), (22, 2, program, 0, 0)]:  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(*arguments) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
PYTHON

background origin "$program" demo --listen 127.0.0.1:0
check "an origin runs" wait_for 20 grep -q 'in front of a small origin' "$work/origin.log"
small=$(sed -n 's|^in front of a small origin of its own at \(http://.*\)$|\1|p' "$work/origin.log")
background silent python3 -c "
import socket, time
server = socket.create_server(('127.0.0.1', $silent))
time.sleep(3600)"

cat >"$work/litequic.toml" <<CONFIG
listen.udp = "127.0.0.1:$port"
litequic.io = "io-uring"
limits.memory = "1 GiB"
limits.max_headers = 20
timeouts.response_header = "100ms"
admin.probes = "127.0.0.1:$probes"
access_log.path = "$work/access.log"
[[certificates]]
cert = "tls.crt"
key = "tls.key"
[origin]
url = "$small"
health.path = "/"
[[routes]]
path_prefix = "/silent"
origin = "silent"
[[routes]]
path_prefix = "/limited"
origin = "small"
rate_limit = "1/s"
[origins.small]
url = "$small"
[origins.silent]
url = "http://127.0.0.1:$silent"
CONFIG
background litequic python3 "$work/without_io_uring.py" "$program" run --config "$work/litequic.toml"
litequic=${started[-1]}
check "litequic serves" wait_for 20 curl --noproxy '*' --silent --fail "http://127.0.0.1:$probes/readyz"

cat >"$work/prometheus.yml" <<CONFIG
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$(realpath ../../helm/litequic-sidecar/files/rules.yaml)]
scrape_configs:
  - job_name: litequic
    static_configs: [{targets: ["127.0.0.1:$probes"]}]
CONFIG
background prometheus prometheus --config.file "$work/prometheus.yml" --storage.tsdb.path "$work/tsdb" --web.listen-address "127.0.0.1:$prometheus"
ask() { curl --noproxy '*' --silent --fail --get "http://127.0.0.1:$prometheus/api/v1/$1" "${@:2}"; }
check "Prometheus scrapes it" wait_for 30 says '"value":\[[^]]*"1"\]' ask query --data-urlencode 'query=up == 1'

# What clients do, until this script ends: most of it well.
get() { "$program" get --ca "$work/tls.crt" --output /dev/null "$@" "https://localhost:$port$path" || true; }
load() {
    local path field=()
    for each in {1..30}; do field+=(--header "X-$each: 1"); done
    while true; do
        for _ in {1..20}; do path=/bytes/1000000 get; done
        path=/bytes/1000 get --data something
        path=/bytes/1000 get "${field[@]}"
        path=/silent get
        for _ in {1..3}; do path=/limited get; done
        "$program" get "https://localhost:$port/" || true
        curl --noproxy '*' --silent --cacert "$work/tls.crt" --output /dev/null "https://localhost:$port/bytes/100000" || true
    done
}
background load load
sleep 15
# A fault that it rejects, and goes on.
sed -i 's/^limits.max_headers = .*/limits.max_headers = "no"/' "$work/litequic.toml"
kill -HUP "$litequic"
sleep 10

cat >"$work/queries.py" <<'PYTHON'
import json
import math
import sys
import urllib.parse
import urllib.request

dashboard, address = sys.argv[1:]
values = {"$job": ".*", "$instance": ".*", "$__rate_interval": "20s"}
with open(dashboard, encoding="utf-8") as file:
    panels = json.load(file)["panels"]
empty = asked = 0
for panel in panels:
    for target in panel.get("targets", []):
        query = target["expr"]
        for name, value in values.items():
            query = query.replace(name, value)
        url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
            result = json.load(answer)["data"]["result"]
        asked += 1
        if all(math.isnan(float(sample["value"][1])) for sample in result):
            empty += 1
            print(f"nothing: {panel['title']}: {query}")
print(f"{asked} queries of {len(panels)} panels and rows, {empty} without a value")
sys.exit(empty != 0 or asked == 0)
PYTHON
check "each query of the dashboard has a value" python3 "$work/queries.py" "$dashboard" "127.0.0.1:$prometheus"
tail -n 1 "$work/out"
healthy() { ! ask rules | grep -o '"health":"[^"]*"' | grep -v '"ok"'; }
check "each rule is evaluated" healthy
check "an alert tells of the rejected configuration" wait_for 30 says '"alertname":"[^"]*(Config|Reload)' ask alerts

# The types of @grafana/schema.
typed() {
    mkdir "$work/types" && ./dashboard_types.py "$dashboard" >"$work/types/dashboard.ts" && cd "$work/types" &&
        npm install --silent --ignore-scripts @grafana/schema@13.2.3 typescript@5.9.3 &&
        npx tsc --noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler dashboard.ts
}
if command -v npm >/dev/null; then
    check "the dashboard has Grafana's types" typed
else
    echo "SKIPPED: types of the dashboard: needs npm"
fi
finish
