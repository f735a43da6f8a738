#!/usr/bin/env bash
# start-debian.sh DEB: from nothing to a response over HTTP/3, as docs/start.md says: installs the package in a Debian 12 with systemd
# (machine.sh), edits a line of its configuration, starts the service, requests a page. Prints how long that took. Then upgrades the
# package, removes and purges it, and looks what is left.
deb=$(realpath "$1")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh
# shellcheck source=packaging/verify/machine.sh
. ./machine.sh

# The server that is there before litequic is: the small one of `litequic demo`, from a copy beside the package's files.
cat >"$work/prepare" <<PREPARE
install -m 644 "$deb" "\$1/root/litequic.deb"
dpkg-deb --extract "$deb" "\$1/opt"
PREPARE
boot "$work/prepare"
inside systemd-run --quiet --unit origin /opt/usr/bin/litequic demo --listen 127.0.0.1:9999
check "a server runs" wait_for 20 says 'in front of a small origin' inside journalctl --unit origin --output cat --no-pager
origin=$(inside journalctl --unit origin --output cat --no-pager | sed -n 's|^in front of a small origin of its own at \(http://.*\)$|\1|p')

config=/etc/litequic/litequic.toml
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet --no-install-recommends "$@"; }
get() { inside litequic get --ca /etc/litequic/self-signed.crt --resolve localhost:8443:127.0.0.1 https://localhost:8443/bytes/1000; }

began=$(date +%s%N)
check "apt install" apt install /root/litequic.deb
check "a line is edited" inside sed -i "s|^url = .*|url = \"$origin\"|" "$config"
check "systemctl start" inside systemctl start litequic
check "a response over HTTP/3" get
printf 'start: %d s\n' $((($(date +%s%N) - began + 999999999) / 1000000000))

check "the service is enabled, and its sockets are not" says '^enabled disabled $' \
    inside sh -c 'systemctl is-enabled litequic.service litequic.socket | tr "\n" " "'
check "it runs as litequic" says '^litequic$' inside ps -o user= -p "$(property MainPID)"
check "other users cannot read the key" says '^640 root litequic$' inside stat -c '%a %U %G' /etc/litequic/self-signed.key

pid=$(property MainPID)
taken_over() { is ActiveState active && ! is MainPID "$pid" && ! is MainPID 0; }
check "the package is upgraded" inside dpkg --install /root/litequic.deb
check "... and the new process has taken over" wait_for 30 taken_over
check "... without a restart" says 'took over.*version_before' journal
check "... with the configuration as it was edited" inside grep -q "$origin" "$config"
check "... and answers" get

inside sed -i 's|^url = .*|url = "nonsense"|' "$config"
pid=$(property MainPID)
check "with a fault in the configuration it is upgraded, too" inside dpkg --install /root/litequic.deb
check "... and the running process goes on" is MainPID "$pid"
check "... and answers" get
inside sed -i "s|^url = .*|url = \"$origin\"|" "$config"

check "apt remove" apt remove litequic
check "... ends the service" not inside /opt/usr/bin/litequic get --insecure --timeout 2s https://127.0.0.1:8443/bytes/1000
check "... and keeps the configuration" inside test -e "$config"
check "apt purge" apt purge litequic
left() {
    # shellcheck disable=SC2016 # the machine's shell
    inside sh -c 'find / -xdev -name "*litequic*" ! -path "/opt/*" ! -path "/root/*" ! -path "/etc/systemd/system/litequic.service.d*"
        find /run/litequic 2>/dev/null
        grep -H ^litequic: /etc/passwd /etc/group' || true
}
nothing_left() {
    left
    [[ -z $(left) ]]
}
check "... leaves nothing" nothing_left
finish
