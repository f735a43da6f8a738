# shellcheck shell=sh
# A certificate to begin with, if the configuration still has it. It names this machine and localhost.
make_certificate() {
    grep -qs self-signed /etc/litequic/litequic.toml || return 0
    [ ! -e /etc/litequic/self-signed.crt ] || return 0
    (
        umask 077
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=litequic \
            -addext "subjectAltName=DNS:localhost,DNS:$(uname -n),IP:127.0.0.1,IP:::1" \
            -addext basicConstraints=critical,CA:FALSE \
            -keyout /etc/litequic/self-signed.key -out /etc/litequic/self-signed.crt 2>/dev/null
    )
    chown root:litequic /etc/litequic/self-signed.key
    chmod 640 /etc/litequic/self-signed.key
    chmod 644 /etc/litequic/self-signed.crt
}

main_process() {
    systemctl show --property MainPID --value litequic.service
}

# take_over COMMAND...: the installed version takes over from the one that runs, which closes no connection. COMMAND restarts the
# service where it cannot: without admin.handover, or on a kernel without what that needs. A version that rejects the
# configuration takes nothing over: the other one goes on.
take_over() {
    before=$(main_process)
    [ "${before:-0}" != 0 ] || return 0
    if ! /usr/libexec/litequic/litequic check --config /etc/litequic/litequic.toml; then
        echo "litequic: the new version rejects the configuration; the running one goes on until it is restarted" >&2
        return 0
    fi
    if grep -Eqs '^[^#]*handover' /etc/litequic/litequic.toml && kill -USR2 "$before"; then
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            sleep 0.5
            now=$(main_process)
            [ "${now:-0}" = 0 ] || [ "$now" = "$before" ] || return 0
        done
    fi
    "$@"
}
