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
# shellcheck source=packaging/verify/package.sh
. ./package.sh

apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet --no-install-recommends "$@"; }
unpack() { inside dpkg-deb --extract /root/litequic.deb /opt; }
install_package() { apt install /root/litequic.deb; }
upgrade_package() { inside dpkg --install /root/litequic.deb; }
start() { inside systemctl start litequic; }

machine_with "$deb" litequic.deb
from_package_to_response
check "the service is enabled, and its sockets are not" says '^enabled disabled $' \
    inside sh -c 'systemctl is-enabled litequic.service litequic.socket | tr "\n" " "'
upgrades

check "apt remove" apt remove litequic
check "... ends the service" ended
check "... and keeps the configuration" inside test -e "$config"
check "apt purge" apt purge litequic
nothing_left() {
    left
    [[ -z $(left) ]]
}
check "... leaves nothing" nothing_left
finish
