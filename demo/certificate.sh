#!/bin/sh
# Creates a certificate for localhost, unless a valid one is there, and prints how to make a browser trust it.
# usage: certificate.sh FOLDER, with LITEQUIC_PORT, PLAIN_PORT and NGINX_PORT in the environment
set -eu
folder=$1
mkdir -p "$folder"

if ! openssl x509 -in "$folder/tls.crt" -noout -checkend 86400 >/dev/null 2>&1; then
    (
        umask 077
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 13 -subj /CN=localhost \
            -addext "basicConstraints=critical,CA:FALSE" \
            -addext "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1" \
            -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>/dev/null
    )
    chmod 644 "$folder/tls.crt"
    # The user of litequic in its image.
    [ "$(id -u)" != 0 ] || chown 65532:65532 "$folder/tls.key"
fi
spki=$(openssl x509 -in "$folder/tls.crt" -noout -pubkey | openssl pkey -pubin -outform der |
    openssl dgst -sha256 -binary | openssl base64 -A)

cat <<TEXT
HTTP/3, LiteQUIC on    https://localhost:$LITEQUIC_PORT/
HTTP/3, LiteQUIC off   https://localhost:$PLAIN_PORT/
HTTP/2, nginx alone    https://localhost:$NGINX_PORT/

demo/chromium.sh opens the page. No client trusts the certificate, and without trust no browser uses HTTP/3. Chromium and Chrome trust it with

  chromium --user-data-dir="\$(mktemp -d)" --origin-to-force-quic-on=localhost:$LITEQUIC_PORT,localhost:$PLAIN_PORT --ignore-certificate-errors-spki-list=$spki --host-resolver-rules="MAP localhost 127.0.0.1" https://localhost:$LITEQUIC_PORT/
TEXT
