# shellcheck shell=bash disable=SC2154 # checks.sh sets `work`
# A small Debian, 12 or SYSTEMD_RELEASE (trixie is 13), with a systemd of its own, as process 1 of namespaces without a network but
# loopback. Sourced after checks.sh.
# Needs root, debootstrap or a root file system with systemd in SYSTEMD_ROOT, and cgroups that may be mounted; says SKIPPED without
# one of them. Leaves nothing behind but the file system in SYSTEMD_CACHE, if that is set.

# What a Debian that is installed has, of what litequic or its package uses; and what a script wants further.
readonly PACKAGES=systemd,systemd-sysv,dbus,procps,openssl,adduser${MORE_PACKAGES:+,$MORE_PACKAGES}

readonly release=${SYSTEMD_RELEASE:-bookworm}

skip() {
    echo "SKIPPED: $1"
    exit 0
}

manager=
end() {
    # The end of process 1 is that of all others in its namespace.
    [[ -z $manager ]] || kill -KILL "$manager" 2>/dev/null || true
    [[ -z $manager ]] || wait "$manager" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# unshare's only child is process 1.
first() { pgrep -P "$manager"; }
inside() { nsenter --target "$(first)" --pid --mount --ipc --uts --cgroup --net -- "$@"; }
up() { says '^(running|degraded)$' inside systemctl is-system-running; }

# boot SCRIPT: starts it. SCRIPT lays files into its root, the first argument, before. Nothing is written to the file system that is
# kept.
boot() {
    ((EUID == 0)) || skip "needs root"
    unshare --pid --fork --mount --ipc --uts --cgroup true 2>/dev/null || skip "needs namespaces"
    local root=${SYSTEMD_ROOT:-}
    if [[ -z $root ]]; then
        command -v debootstrap >/dev/null || skip "needs debootstrap, or SYSTEMD_ROOT"
        # In the options of a mount a comma ends a value.
        root=${SYSTEMD_CACHE:-$work}/$release${MORE_PACKAGES:+-${MORE_PACKAGES//,/-}}
        # The newest file that it makes says whether one in the cache is whole, and has these packages.
        [[ $(cat "$root/etc/packages.made" 2>/dev/null) == "$PACKAGES" ]] || {
            rm -rf "$root"
            debootstrap --variant=minbase --include="$PACKAGES" "$release" "$root" >"$work/debootstrap" 2>&1 ||
                skip "debootstrap failed: $(tail -n 1 "$work/debootstrap")"
            echo "$PACKAGES" >"$root/etc/packages.made"
        }
    fi
    cat >"$work/begin" <<'BEGIN'
set -eu
root=$1 work=$2 prepare=$3
mount --make-rprivate /
mkdir "$work/upper" "$work/top"
mount -t tmpfs tmpfs "$work/upper"
mkdir "$work/upper/changes" "$work/upper/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper/changes,workdir=$work/upper/work" "$work/top"
top=$work/top
mount -t proc proc "$top/proc"
mount -t sysfs -o ro sysfs "$top/sys"
mount -t tmpfs tmpfs "$top/run"
mount -t tmpfs tmpfs "$top/tmp"
mount --rbind /dev "$top/dev"
# systemd 256 and newer know the second version alone, also without controllers.
if ! mount -t cgroup2 cgroup2 "$top/sys/fs/cgroup"; then
    mount -t tmpfs tmpfs "$top/sys/fs/cgroup"
    mkdir "$top/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$top/sys/fs/cgroup/systemd"
fi
bash -eu "$prepare" "$top"
# A container's image forbids packages to start and end services.
rm -f "$top/usr/sbin/policy-rc.d"
# As many files as this machine may give.
mkdir -p "$top/etc/systemd/system/litequic.service.d"
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
    unshare --pid --fork --kill-child --mount --ipc --uts --cgroup --net \
        bash "$work/begin" "$root" "$work" "$1" >"$work/console" 2>&1 &
    manager=$!
    wait_for 10 first || skip "no process in a namespace of its own"
    wait_for 60 up || skip "systemd did not come up here: $(tail -n 1 "$work/console")"
    inside ip link set lo up 2>/dev/null || inside sh -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>/dev/null || true
}

property() { inside systemctl show --property "$1" --value litequic; }
is() { [[ $(property "$1") == "$2" ]]; }
journal() { inside journalctl --unit litequic --output cat --no-pager; }
