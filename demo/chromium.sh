#!/bin/sh
# Opens the demo's page in Chromium or Chrome: it trusts the demo's certificate and uses HTTP/3 from the first request on.
# On Linux it connects to the containers' own addresses, because docker-proxy, behind the published ports, loses datagrams.
# usage: chromium.sh [OPTION...], options of Chromium's. From the environment, all optional:
#   CHROMIUM                                  the program
#   LITEQUIC_PORT, PLAIN_PORT, NGINX_PORT     8443, 8444, 8445
set -eu
here=$(cd "$(dirname "$0")" && pwd)
litequic=${LITEQUIC_PORT:-8443} plain=${PLAIN_PORT:-8444} nginx=${NGINX_PORT:-8445}

for name in ${CHROMIUM:+"$CHROMIUM"} chromium google-chrome google-chrome-stable chromium-browser \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
    chromium=$(command -v "$name") && break
done
[ -n "$chromium" ] || { echo "There is no Chromium: CHROMIUM=PROGRAM $0" >&2; exit 69; }

# The address of a service's container, or nothing.
address() {
    container=$(docker compose --project-directory "$here" ps --quiet "$1" 2>/dev/null) && [ -n "$container" ] &&
        docker inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$container"
}

certificate() {
    openssl s_client -connect "$1" </dev/null 2>/dev/null | openssl x509 2>/dev/null
}

certificate=$(certificate "127.0.0.1:$nginx") || { echo "No demo answers on 127.0.0.1:$nginx" >&2; exit 69; }
fingerprint=$(echo "$certificate" | openssl x509 -noout -pubkey | openssl pkey -pubin -outform der |
    openssl dgst -sha256 -binary | openssl base64 -A)

rules="MAP localhost 127.0.0.1"
if [ "$(uname)" = Linux ] && of_nginx=$(address nginx-tls) && of_litequic=$(address litequic) && of_plain=$(address plain) &&
    timeout 3 openssl s_client -connect "$of_nginx:8445" </dev/null >/dev/null 2>&1; then
    rules="MAP localhost:$litequic $of_litequic:$litequic, MAP localhost:$plain $of_plain:$plain, MAP localhost:$nginx $of_nginx:8445"
fi

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
"$chromium" --user-data-dir="$profile" --no-first-run --origin-to-force-quic-on="localhost:$litequic,localhost:$plain" \
    --ignore-certificate-errors-spki-list="$fingerprint" --host-resolver-rules="$rules" "$@" "https://localhost:$litequic/"
