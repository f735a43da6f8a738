#!/usr/bin/env bash
# systemd.sh [PROGRAM]: runs the unit of packaging/systemd under a systemd of its own, as process 1 of a PID namespace in a small
# Debian, and looks whether start, reload, upgrade and faults do what docs/operating.md says. PROGRAM is target/release/litequic
# unless said otherwise. Needs root, debootstrap or a root file system with systemd in SYSTEMD_ROOT, and cgroups that may be
# mounted; says SKIPPED without one of them. Leaves nothing behind but the file system in SYSTEMD_CACHE, if that is set.
program=$(realpath "${1:-$(dirname "$0")/../../target/release/litequic}")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

skip() {
    echo "SKIPPED: $1"
    exit 0
}
((EUID == 0)) || skip "needs root"
[[ -x $program ]] || skip "there is no $program"
unshare --pid --fork --mount --ipc --uts --cgroup true 2>/dev/null || skip "needs namespaces"

root=${SYSTEMD_ROOT:-}
if [[ -z $root ]]; then
    command -v debootstrap >/dev/null || skip "needs debootstrap, or SYSTEMD_ROOT"
    root=${SYSTEMD_CACHE:-$work}/root
    # The newest file that it makes shows whether one in the cache is complete.
    [[ -e $root/etc/machine-id.made ]] || {
        rm -rf "$root"
        debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps bookworm "$root" >"$work/debootstrap" 2>&1 ||
            skip "debootstrap failed: $(tail -n 1 "$work/debootstrap")"
        touch "$root/etc/machine-id.made"
    }
fi

manager=
end() {
    # The end of process 1 is that of all others in its namespace.
    [[ -z $manager ]] || kill -KILL "$manager" 2>/dev/null || true
    [[ -z $manager ]] || wait "$manager" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# Nothing is written to the file system that is kept.
cat >"$work/begin" <<'BEGIN'
set -eu
root=$1 work=$2 program=$3 units=$4
mount --make-rprivate /
mkdir "$work/upper" "$work/lower" "$work/top"
mount -t tmpfs tmpfs "$work/upper"
mkdir "$work/upper/changes" "$work/upper/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper/changes,workdir=$work/upper/work" "$work/top"
top=$work/top
mount -t proc proc "$top/proc"
mount -t sysfs -o ro sysfs "$top/sys"
mount -t tmpfs tmpfs "$top/run"
mount -t tmpfs tmpfs "$top/tmp"
mount --rbind /dev "$top/dev"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 "$top/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$top/sys/fs/cgroup"
    mkdir "$top/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$top/sys/fs/cgroup/systemd"
fi
install -m 755 "$program" "$top/usr/bin/litequic"
install -m 644 -t "$top/etc/systemd/system" "$units"/litequic.service
mkdir -p "$top/etc/litequic" "$top/etc/systemd/system/litequic.service.d"
install -m 644 -t "$top/etc/litequic" "$work"/tls.crt "$work"/tls.key "$work"/litequic.toml
# As many files as this machine may give.
printf '[Service]\nLimitNOFILE=%s\n' "$(ulimit -Hn)" >"$top/etc/systemd/system/litequic.service.d/files.conf"
for unit in systemd-networkd systemd-resolved systemd-timesyncd systemd-logind systemd-udevd getty.target console-getty; do
    case $unit in *.*) ;; *) unit=$unit.service ;; esac
    ln -sf /dev/null "$top/etc/systemd/system/$unit"
done
cd "$top"
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=litequic-verify PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
BEGIN

certificate tls localhost
cat >"$work/litequic.toml" <<'CONFIG'
listen.udp = "127.0.0.1:8443"
log.format = "json"
admin.listen = "127.0.0.1:9443"
admin.handover = "/run/litequic/handover.sock"
[[certificates]]
cert = "tls.crt"
key = "tls.key"
[origin]
url = "http://127.0.0.1:1"
CONFIG

unshare --pid --fork --kill-child --mount --ipc --uts --cgroup --net \
    bash "$work/begin" "$root" "$work" "$program" "$(realpath ../systemd)" >"$work/console" 2>&1 &
manager=$!
# unshare's only child is process 1.
first() { pgrep -P "$manager"; }
wait_for 10 first || skip "no process in a namespace of its own"
inside() { nsenter --target "$(first)" --pid --mount --ipc --uts --cgroup --net -- "$@"; }
up() { inside systemctl is-system-running | grep -Eq 'running|degraded'; }
wait_for 60 up || skip "systemd did not come up here: $(tail -n 1 "$work/console")"
inside ip link set lo up 2>/dev/null || inside sh -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>/dev/null || true

config=/etc/litequic/litequic.toml
property() { inside systemctl show --property "$1" --value litequic; }
is() { [[ $(property "$1") == "$2" ]]; }
journal() { inside journalctl --unit litequic --output cat --no-pager; }
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

upgraded() { is ActiveState active && ! is MainPID "$pid" && ! is MainPID 0; }
check "SIGUSR2 starts another process" inside systemctl kill --kill-whom=main --signal=SIGUSR2 litequic
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

finish
