#!/usr/bin/env bash
# systemd.sh [PROGRAM]: runs the unit of packaging/systemd under a systemd of its own (machine.sh), and looks whether start, reload,
# upgrade and faults do what docs/operating.md says. PROGRAM is target/release/litequic unless said otherwise.
program=$(realpath "${1:-$(dirname "$0")/../../target/release/litequic}")
cd "$(dirname "$0")" || exit
# shellcheck disable=SC2034 # machine.sh; the guides' commands need jq
MORE_PACKAGES=jq
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh
# shellcheck source=packaging/verify/machine.sh
. ./machine.sh
[[ -x $program ]] || skip "there is no $program"

certificate tls localhost
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
install -m 755 "$program" "\$1/usr/bin/litequic"
install -m 644 -t "\$1/etc/systemd/system" "$(realpath ../systemd)/litequic.service"
mkdir -p "\$1/etc/litequic"
install -m 644 -t "\$1/etc/litequic" "$work/tls.crt" "$work/tls.key" "$work/litequic.toml"
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

finish
