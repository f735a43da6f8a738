# shellcheck shell=bash disable=SC2154 # checks.sh sets `work`
# What start-debian.sh and start-rpm.sh share: a machine (machine.sh) with a server, the way from a package to a response over HTTP/3
# in front of it, and upgrades. Sourced after machine.sh. They have functions of their own: unpack (the package's files, below /opt),
# install_package, upgrade_package and start.

readonly config=/etc/litequic/litequic.toml
get() { inside litequic get --ca /etc/litequic/self-signed.crt --resolve localhost:8443:127.0.0.1 https://localhost:8443/bytes/1000; }

# A page by the Chromium of this machine in the network of the other one, which has QUIC as its only way there.
page() {
    local key
    key=$(inside openssl x509 -in /etc/litequic/self-signed.crt -noout -pubkey | openssl pkey -pubin -outform der |
        openssl dgst -sha256 -binary | openssl base64 -A)
    nsenter --target "$(first)" --net timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/chromium" \
        --origin-to-force-quic-on=localhost:8443 --ignore-certificate-errors-spki-list="$key" --dump-dom https://localhost:8443/
}

# machine_with PACKAGE NAME: starts the machine, with PACKAGE as /root/NAME, and the server that is there before litequic is: the small
# one of `litequic demo`. Sets origin to its URL.
machine_with() {
    echo "install -m 644 '$1' \"\$1/root/$2\"" >"$work/prepare"
    boot "$work/prepare"
    unpack
    check "the package has the manual pages" inside test -e /opt/usr/share/man/man1/litequic.1.gz -a -e /opt/usr/share/man/man5/litequic.toml.5.gz
    inside systemd-run --quiet --unit origin /opt/usr/libexec/litequic/litequic demo --listen 127.0.0.1:9999
    check "a server runs" wait_for 20 says 'in front of a small origin' inside journalctl --unit origin --output cat --no-pager
    origin=$(inside journalctl --unit origin --output cat --no-pager | sed -n 's|^in front of a small origin of its own at \(http://.*\)$|\1|p')
}

# From the package to a response.
from_package_to_response() {
    local began
    began=$(date +%s%N)
    check "the package is installed" install_package
    check "a line is edited" inside sed -i "s|^url = .*|url = \"$origin\"|" "$config"
    check "the service is started" start
    check "a response over HTTP/3" get
    printf 'start: %d s\n' $((($(date +%s%N) - began + 999999999) / 1000000000))
    if command -v chromium >/dev/null; then
        check "Chromium shows a page over HTTP/3" says '<h1>' page
    else
        echo "SKIPPED: a page over HTTP/3: needs chromium"
    fi
    check "it runs as litequic" says '^litequic$' inside ps -o user= -p "$(property MainPID)"
    check "other users cannot read the key" says '^640 root litequic$' inside stat -c '%a %U %G' /etc/litequic/self-signed.key
}

taken_over() { is ActiveState active && ! is MainPID "$1" && ! is MainPID 0; }

# The package over itself, which the scripts take for another version.
upgrades() {
    local pid
    pid=$(property MainPID)
    check "the package is upgraded" upgrade_package
    check "... and the new process has taken over" wait_for 30 taken_over "$pid"
    check "... without a restart" says 'took over.*version_before' journal
    check "... with the configuration as it was edited" inside grep -q "$origin" "$config"
    check "... and answers" get

    inside sed -i 's|^url = .*|url = "nonsense"|' "$config"
    pid=$(property MainPID)
    check "with a fault in the configuration it is upgraded, too" upgrade_package
    check "... and the running process goes on" is MainPID "$pid"
    check "... and answers" get
    inside sed -i "s|^url = .*|url = \"$origin\"|" "$config"
}

# What has litequic's name: files, but those of this test, and users.
left() {
    # shellcheck disable=SC2016 # the machine's shell
    inside sh -c 'find / -xdev -name "*litequic*" ! -path "/opt/*" ! -path "/root/*" ! -path "/etc/systemd/system/litequic.service.d*"
        find /run/litequic 2>/dev/null
        grep -H ^litequic: /etc/passwd /etc/group' || true
}

# Nothing serves any more.
ended() { not inside /opt/usr/libexec/litequic/litequic get --insecure --timeout 2s https://127.0.0.1:8443/bytes/1000; }
