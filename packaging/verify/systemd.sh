#!/usr/bin/env bash
# systemd.sh [PROGRAM]: runs the unit of packaging/systemd under a systemd of its own (machine.sh), and looks whether start, reload,
# upgrade and faults do what docs/operating.md says. PROGRAM is target/release/litequic unless said otherwise.
program=$(realpath "${1:-$(dirname "$0")/../../target/release/litequic}")
cd "$(dirname "$0")" || exit
# shellcheck disable=SC2034 # machine.sh; the guides' commands need them
MORE_PACKAGES=jq,bubblewrap
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh
# shellcheck source=packaging/verify/machine.sh
. ./machine.sh
[[ -x $program ]] || skip "there is no $program"

# What systemd-analyze calls the exposure, in tenths, of 100: of the unit, and with examples/sockets-of-systemd.conf.
readonly EXPOSURE=15 EXPOSURE_WITH_SOCKETS=11
if command -v systemd-analyze >/dev/null && command -v gcc >/dev/null; then
    mkdir "$work/unit"
    exposed() { systemd-analyze security --offline=true --threshold="$1" "$work/unit/litequic.service" | tail -n 1; }
    printf '[Service]\nType=notify\nUser=litequic\nExecStart=%s run\n' "$program" >"$work/unit/litequic.service"
    check "systemd-analyze security, of a unit with a user and no more" exposed 100
    tail -n 1 "$work/out" | sed 's/^/      /'
    sed "s|/usr/libexec/litequic/litequic|$program|" ../systemd/litequic.service >"$work/unit/litequic.service"
    check "systemd-analyze security: at most $EXPOSURE" exposed $EXPOSURE
    tail -n 1 "$work/out" | sed 's/^/      /'
    sed '/^\[Service\]/d' ../systemd/examples/sockets-of-systemd.conf >"$work/unit/more"
    sed -i "/^\[Install\]/{
        e cat '$work/unit/more'
    }" "$work/unit/litequic.service"
    check "... with sockets of systemd's at most $EXPOSURE_WITH_SOCKETS" exposed $EXPOSURE_WITH_SOCKETS
    tail -n 1 "$work/out" | sed 's/^/      /'
    gcc -static -o "$work/intruder" intruder.c
else
    skip "needs systemd-analyze and gcc"
fi

certificate tls localhost
certificate renewed localhost
cat >"$work/litequic.toml" <<'CONFIG'
listen.udp = "127.0.0.1:8443"
log.format = "json"
admin.listen = "127.0.0.1:9443"
admin.handover = "/run/litequic/handover.sock"
access_log.path = "stderr"
[[certificates]]
cert = "tls.crt"
key = "tls.key"
[origin]
url = "http://127.0.0.1:1"
CONFIG

cat >"$work/prepare" <<PREPARE
mkdir -p "\$1/usr/libexec/litequic" "\$1/usr/local/libexec"
install -m 755 "$program" "\$1/usr/libexec/litequic/litequic"
ln -s ../libexec/litequic/litequic "\$1/usr/bin/litequic"
ln -s ../../libexec/litequic "\$1/usr/local/libexec/litequic"
install -m 644 -t "\$1/etc/systemd/system" "$(realpath ../systemd)/litequic.service"
mkdir -p "\$1/etc/litequic"
install -m 644 -t "\$1/etc/litequic" "$work/tls.crt" "$work/tls.key" "$work/litequic.toml"
install -m 755 "$work/intruder" "\$1/usr/libexec/litequic/intruder"
mkdir -p "\$1/home/user"
echo secret >"\$1/home/user/secret"
# Unit NAME COMMAND: litequic's, with another command.
unit() {
    sed -e "s|^ExecStart=.*|ExecStart=\$2|" -e '/^ExecReload/d; /^Type=/d; /^WatchdogSec/d; /^Restart/d' \
        "$(realpath ../systemd)/litequic.service" >"\$top/etc/systemd/system/\$1.service"
}
top=\$1
unit intruder "/usr/libexec/litequic/intruder io_uring_setup"
unit probe "/usr/libexec/litequic/litequic probe"
# Its end would remove the folder of the one that serves.
sed -i '/^RuntimeDirectory/d' "\$top/etc/systemd/system/probe.service"
PREPARE
boot "$work/prepare"

config=/etc/litequic/litequic.toml
break_it() { inside sh -c "sed -i 's|^log.format = .*|log.format = \"jsonn\"|' $config"; }
mend_it() { inside sh -c "sed -i 's|^log.format = .*|log.format = \"json\"|' $config"; }

check "starts, and is ready" inside systemctl start litequic
# Right after its start it reads its files once more, which is a reload.
check "is active" wait_for 10 is ActiveState active
pid=$(property MainPID)
check "reloads" inside systemctl reload litequic
break_it
check "with a fault a reload fails" not inside systemctl reload litequic
check "... and the journal has the fault, with its line" says 'litequic.toml:2:.*log.format' journal
check "... and the service goes on" wait_for 10 is ActiveState active
check "... as it was" is MainPID "$pid"
mend_it
check "mended, it reloads again" inside systemctl reload litequic

# Commands of the guides, as they stand there.
as_in_guide() { inside sh -c "$(guide "$@")"; }
check "the guide's reload" as_in_guide run-under-systemd 'systemctl reload'
check "a request without an origin is a 502" says '502 Bad Gateway' inside litequic get --head --insecure https://127.0.0.1:8443/
check "the guide's journalctl and jq find it" wait_for 10 says '"status": 502' as_in_guide log-to-journald-or-syslog 'jq '
followed() { says '"request_id"' inside timeout 2 sh -c "$(guide log-to-journald-or-syslog '--follow')"; }
check "the guide's journalctl --follow shows its line" followed
check "the guide's set-property" as_in_guide use-several-cores 'set-property'
check "... is in force" is AllowedCPUs 0-3

upgraded() { is ActiveState active && ! is MainPID "$pid" && ! is MainPID 0; }
check "SIGUSR2, as in the guide, starts another process" as_in_guide run-under-systemd 'SIGUSR2'
check "... which becomes the main one" wait_for 30 upgraded
check "... and logs the version that it took over from" wait_for 10 says 'took over.*version_before' journal
check "stops" inside systemctl stop litequic

break_it
check "with a fault it does not start" not inside systemctl start litequic
failed() { is ActiveState failed; }
check "... and fails" wait_for 10 failed
check "... with 78" is ExecMainStatus 78
check "... and is not started again" is NRestarts 0
mend_it
check "mended, it starts" inside sh -c 'systemctl reset-failed litequic; systemctl start litequic'
inside systemctl kill --kill-whom=main --signal=SIGKILL litequic
restarted() { is NRestarts 1 && is ActiveState active; }
check "killed, it is started again" wait_for 30 restarted
check "the guide's disable --now" as_in_guide downgrade-or-uninstall 'systemctl disable'
check "... ends it" wait_for 30 is ActiveState inactive


echo "# confinement"
file() { cat >"/proc/$(first)/root$1"; }
# Beside the machine, in its network: HTTP/1.1 at 127.0.0.1:8080 and at a Unix socket, and DNS, which knows dns.test alone.
cat >"$work/origin.py" <<'PYTHON'
import http.server
import os
import socket
import socketserver
import struct
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.server.body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "client"

    def log_message(self, *arguments):
        pass


class Unix(socketserver.ThreadingUnixStreamServer):
    body = b"by a Unix socket\n"


class Tcp(http.server.ThreadingHTTPServer):
    body = b"by TCP\n"


path = sys.argv[1]
unix = Unix(path, Handler)
os.chmod(path, 0o777)
threading.Thread(target=unix.serve_forever, daemon=True).start()
threading.Thread(target=Tcp(("127.0.0.1", 8080), Handler).serve_forever, daemon=True).start()
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.bind(("127.0.0.1", 53))
while True:
    query, client = dns.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    known = query[12:end - 4] == b"\3dns\4test\0" and query[end - 4:end - 2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 60, 4) + bytes([127, 0, 0, 1]) if known else b""
    header = query[:2] + (b"\x81\x80" if known else b"\x81\x83") + struct.pack("!HHHH", 1, bool(known), 0, 0)
    dns.sendto(header + query[12:end] + answer, client)
PYTHON
nsenter --target "$(first)" --net -- python3 "$work/origin.py" "/proc/$(first)/root/run/origin.sock" >"$work/origin.log" 2>&1 &
helpers=($!)
trap 'kill "${helpers[@]}" 2>/dev/null || true; end' EXIT
echo "127.0.0.1 localhost hosts.test" | file /etc/hosts
echo "nameserver 127.0.0.1" | file /etc/resolv.conf

check "starts" inside sh -c 'systemctl reset-failed litequic; systemctl start litequic'
status() { inside litequic ctl status --json; }
check "/status has what surrounds it" says '"capabilities": "CAP_NET_BIND_SERVICE"' status
check "... no new privileges" says '"no_new_privileges": true' status
check "... a seccomp filter" says '"seccomp": "filter"' status
check "... a read-only root" says '"read_only_root": true' status
check "... no core dumps" says '"core_dumps": false' status
check "a process that is not dumpable reads its own files" says '"open_files": [1-9]' status
check "... and its memory" says '"resident_bytes": [1-9]' status
check "probe prints it" inside systemctl start probe
probed() { inside journalctl --unit probe --output cat --no-pager; }
check "... under the unit" wait_for 10 says '^effective capabilities +CAP_NET_BIND_SERVICE$' probed
probed | sed -n '/^user/,/^read-only/s/^/      /p'

served() { says "$1" inside litequic get --insecure https://127.0.0.1:8443/; }
origin() { inside sed -i "s|^url = .*|url = \"$1\"|" $config && inside systemctl reload litequic; }
check "an origin by its address" origin http://127.0.0.1:8080
check "... serves" wait_for 10 served '^by TCP$'
check "an origin by a Unix socket" origin unix:/run/origin.sock
check "... serves" wait_for 10 served '^by a Unix socket$'
check "an origin by a name of /etc/hosts" origin http://hosts.test:8080
check "... serves" wait_for 10 served '^by TCP$'
inside sed -i 's|hosts.test|dns.test|' $config
check "an origin by a name of DNS" inside systemctl reload litequic
check "... serves" wait_for 10 served '^by TCP$'

inside mkdir /etc/litequic/new
file /etc/litequic/new/tls.crt <"$work/renewed.crt"
file /etc/litequic/new/tls.key <"$work/renewed.key"
inside sed -i 's|"tls\.|"new/tls.|' $config
check "a certificate in a new folder, by a reload" inside systemctl reload litequic
file /tmp/renewed.crt <"$work/renewed.crt"
verified() { inside litequic get --ca /tmp/renewed.crt --resolve localhost:8443:127.0.0.1 https://localhost:8443/; }
check "... is served" wait_for 10 verified

inside sed -i 's|^access_log.path = .*|access_log.path = "/var/log/litequic/access.log"|' $config
check "an access log in a file, by a reload" inside systemctl reload litequic
logged() { served TCP && inside grep -q GET /var/log/litequic/access.log; }
check "... is written" wait_for 10 logged
inside mv /var/log/litequic/access.log /var/log/litequic/access.log.1
inside systemctl kill --kill-whom=main --signal=SIGUSR1 litequic
check "... and reopened" wait_for 10 logged

pid=$(property MainPID)
inside sh -c 'cd /usr/libexec/litequic && cp litequic .litequic.new && mv .litequic.new litequic'
inside systemctl kill --kill-whom=main --signal=SIGUSR2 litequic
other_runs() { upgraded || { journal | tail -n 5 && false; }; }
check "a hot upgrade to a program whose file was replaced" wait_for 30 other_runs
check "... serves" wait_for 10 served '^by TCP$'

inside sed -i '1i litequic.io = "io-uring"' $config
check "io_uring" inside systemctl restart litequic
check "... serves" wait_for 10 served '^by TCP$'
check "... by rings, or says why not" says 'io_uring' inside sh -c "litequic probe --config $config"
fell_back() { journal | grep -q 'falling back to epoll'; }
check "... without falling back" not fell_back

inside systemctl kill --kill-whom=main --signal=SIGABRT litequic
# With a core dump systemd says "code=dumped".
check "an abort writes no core dump" wait_for 30 says 'code=killed, status=6/ABRT' journal

refusals() { inside journalctl --unit intruder --output cat --no-pager | grep -E '^(refused|ALLOWED)'; }
check "an intruder" inside systemctl start intruder
check "... ends" wait_for 20 says '^refused init_module' refusals
check "... is refused everything" not says ALLOWED refusals
refusals | sed 's/^/      /'

echo "# a DNS command"
command='#!/bin/sh
echo "$*" >>/var/lib/litequic/dns.log'
if command -v pebble >/dev/null; then
    certificate ca localhost
    file /etc/litequic/ca.crt <"$work/ca.crt"
    cat >"$work/pebble.json" <<JSON
{"pebble": {"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000", "certificate": "$work/ca.crt",
    "privateKey": "$work/ca.key", "httpPort": 5002, "tlsPort": 5001, "retryAfter": {"authz": 1, "order": 1},
    "profiles": {"default": {"description": "ninety days", "validityPeriod": 7776000}}}}
JSON
    # It asks no name server: whether a record is there is not what is tested.
    nsenter --target "$(first)" --net -- env PEBBLE_VA_ALWAYS_VALID=1 PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=0 \
        pebble -config "$work/pebble.json" >"$work/pebble.log" 2>&1 &
    helpers+=($!)
    inside sh -c "cat >>$config" <<'CONFIG'
[[acme]]
hosts = ["dns.test"]
folder = "/var/lib/litequic/acme"
terms_agreed = true
challenges = ["dns-01"]
dns_command = ["/usr/local/bin/dns-challenge"]
directory = "https://localhost:14000/dir"
ca = "/etc/litequic/ca.crt"

[laboratory]
dns_wait = "0s"
CONFIG
    file /usr/local/bin/dns-challenge <<<"$command"
    inside chmod 755 /usr/local/bin/dns-challenge
    check "without dns-command.conf it does not start" not inside systemctl restart litequic
    check "... and says why" says 'dns-challenge.*Permission denied' journal
    # A script needs /bin/sh.
    sed 's|^#ExecPaths=/usr/bin|ExecPaths=/usr/bin|' ../systemd/examples/dns-command.conf | file /etc/systemd/system/litequic.service.d/dns-command.conf
    check "with dns-command.conf" inside sh -c 'systemctl daemon-reload; systemctl restart litequic'
    check "... it sets the record" wait_for 30 inside grep -q '^present _acme-challenge.dns.test. ' /var/lib/litequic/dns.log
    check "... and removes it" wait_for 30 inside grep -q '^cleanup _acme-challenge.dns.test. ' /var/lib/litequic/dns.log
    issued() { inside sh -c 'litequic get --verbose --insecure --head --resolve dns.test:8443:127.0.0.1 https://dns.test:8443/ 2>&1 | grep -i pebble'; }
    check "... and the certificate is served" wait_for 30 issued
else
    echo "SKIPPED: needs pebble"
fi
inside systemctl stop litequic

echo "# the guide for machines without the unit"
# As from the tarball: /usr/local/libexec/litequic.
file "$config" <"$work/litequic.toml"
inside chown proxy: /etc/litequic/tls.key
answers() { says '502 Bad Gateway' inside litequic get --head --insecure https://127.0.0.1:8443/; }
wrapped=$(guide confine-on-a-bare-machine 'bwrap ')
inside install -d -o proxy -m 700 /run/litequic
inside runuser -u proxy -- sh -c "$wrapped" >"$work/bwrap.log" 2>&1 &
helpers+=($!)
check "bwrap, as in the guide" wait_for 20 answers
says_bwrap() { cat "$work/bwrap.log"; }
check "... reports a read-only root" says '"read_only_root":true' says_bwrap
inside pkill -u proxy -x litequic || true
wait_for 20 not answers >/dev/null
# Nothing forbids to execute files there, nor system calls. The other process is bwrap.
printf -v left_out '%q ' "execve of "{/bin/sh,"/bin/sh by the dynamic loader","a file in memory","a file written to "{/tmp,/dev/shm,/run/litequic}} \
    "read of another process' memory" process_vm_readv ptrace keyctl io_uring_setup perf_event_open bpf
tried() { inside runuser -u proxy -- sh -c "${wrapped%litequic/litequic run*}litequic/intruder $left_out"; }
check "... an intruder is refused the files and other processes" tried
sed 's/^/      /' "$work/out"
inside rm -r /run/litequic

inside sh -c 'rm -f /etc/systemd/system/litequic.service /etc/systemd/system/litequic.service.d/dns-command.conf; systemctl daemon-reload'
inside useradd --system --user-group --no-create-home litequic
inside chown litequic: /etc/litequic/tls.key
check "systemd-run, as in the guide" as_in_guide confine-on-a-bare-machine 'systemd-run '
check "... serves" wait_for 20 answers
check "... and has its properties" is NoNewPrivileges yes
pid=$(property MainPID)
inside systemctl kill --kill-whom=main --signal=SIGUSR2 litequic
check "... a hot upgrade" wait_for 30 upgraded
inside systemctl stop litequic

finish
