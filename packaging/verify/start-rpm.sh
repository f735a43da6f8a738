#!/usr/bin/env bash
# start-rpm.sh RPM: what start-debian.sh does, with the rpm, and without a distribution that has such: by Debian's rpm, with a
# database of its own, in a Debian 12 with systemd (machine.sh). So it does not know what a package requires (--nodeps), nor what Fedora
# has otherwise (SELinux, presets).
rpm=$(realpath "$1")
cd "$(dirname "$0")" || exit
# shellcheck disable=SC2034 # machine.sh
MORE_PACKAGES=rpm,cpio
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh
# shellcheck source=packaging/verify/machine.sh
. ./machine.sh
# shellcheck source=packaging/verify/package.sh
. ./package.sh

rpm() { inside rpm --dbpath /var/lib/rpm --nodeps "$@"; }
unpack() { inside sh -c 'cd /opt && rpm2cpio /root/litequic.rpm | cpio --extract --make-directories --quiet'; }
install_package() { rpm --install /root/litequic.rpm; }
upgrade_package() { rpm --upgrade --force /root/litequic.rpm; }
start() { inside systemctl enable --now litequic; }

machine_with "$rpm" litequic.rpm
check "a database" inside rpm --dbpath /var/lib/rpm --initdb
from_package_to_response
intact() {
    local changed
    changed=$(rpm --verify litequic) || true
    printf '%s\n' "$changed"
    [[ $changed == *" c $config" && $changed != *$'\n'* ]]
}
check "the package's files are as they were packed, but for the configuration" intact
upgrades

check "rpm --erase" rpm --erase litequic
check "... ends the service" ended
# The configuration as it was edited, state, logs and the user stay, as is Fedora's custom.
kept_alone() {
    inside ls -A /etc/litequic
    left
    [[ $(inside ls -A /etc/litequic) == litequic.toml.rpmsave ]] &&
        ! left | grep -Ev '^(/etc/litequic(/litequic.toml.rpmsave)?|/var/(lib|log)/.*|/etc/(passwd|group):litequic:.*)$'
}
check "... leaves the edited configuration, state, logs and the user" kept_alone
finish
