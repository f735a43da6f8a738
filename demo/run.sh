#!/bin/sh
# The demo without Docker: nginx, two litequic and the page, on 127.0.0.1, until Ctrl-C. What it makes and fetches stays in
# target/demo. From the environment, all optional:
#   LITEQUIC                                  the program; without it target/release/litequic, built if it is not there
#   LITEQUIC_PORT, PLAIN_PORT, NGINX_PORT     8443, 8444, 8445
#   LITEQUIC_METRICS, PLAIN_METRICS           127.0.0.1:9444, 127.0.0.1:9445
#   LITEQUIC_ADMIN, PLAIN_ADMIN               127.0.0.1:9443, 127.0.0.1:9446
#   LENGTH                                    seconds of video: 60
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
work=$root/target/demo
PATH=$PATH:/usr/sbin

# Name, what it is for, Debian's package.
missing=
needs() {
    command -v "$1" >/dev/null || missing="$missing
  $1, $2 (Debian: apt-get install $3)"
}
needs nginx "the origin" nginx-light
needs ffmpeg "makes the video" ffmpeg
needs npm "fetches dash.js" npm
needs openssl "makes the certificate" openssl
if [ -n "$missing" ]; then
    echo "The demo lacks$missing" >&2
    exit 69
fi

export LITEQUIC_PORT="${LITEQUIC_PORT:-8443}" PLAIN_PORT="${PLAIN_PORT:-8444}" NGINX_PORT="${NGINX_PORT:-8445}"
export LITEQUIC_METRICS="${LITEQUIC_METRICS:-127.0.0.1:9444}" PLAIN_METRICS="${PLAIN_METRICS:-127.0.0.1:9445}"
admin=${LITEQUIC_ADMIN:-127.0.0.1:9443}
plain_admin=${PLAIN_ADMIN:-127.0.0.1:9446}
LENGTH=${LENGTH:-60}
litequic=${LITEQUIC:-$root/target/release/litequic}
if [ -z "${LITEQUIC:-}" ] && [ ! -x "$litequic" ]; then
    cargo build --release --locked --manifest-path "$root/Cargo.toml" --target-dir "$root/target"
fi

# Made under another name first: an existing file is complete.
mkdir -p "$work"
media=$work/media-$LENGTH
if [ ! -d "$media" ]; then
    echo "making $LENGTH s of video"
    rm -rf "$media.new"
    "$here/ladder.sh" "$media.new" "$LENGTH"
    mv "$media.new" "$media"
fi
dash=$work/dash-$(cksum <"$here/dash.sh" | cut -d ' ' -f 1)
if [ ! -d "$dash" ]; then
    echo "fetching dash.js"
    rm -rf "$dash.new"
    "$here/dash.sh" "$dash.new"
    mv "$dash.new" "$dash"
fi

run=$(mktemp -d)
started=
finish() {
    trap - EXIT INT TERM
    # shellcheck disable=SC2086 # process IDs
    [ -z "$started" ] || kill $started 2>/dev/null || true
    wait
    rm -rf "$run"
}
trap finish EXIT
trap 'exit 0' INT TERM

welcome=$("$here/certificate.sh" "$run/tls")

export ORIGIN_LISTEN="unix:$run/nginx.sock" NGINX_LISTEN="127.0.0.1:$NGINX_PORT"
export PAGE="$here/page" DASH="$dash" MEDIA="$media" TLS="$run/tls" RESOLVER=
cat >"$run/nginx.conf" <<NGINX
daemon off;
master_process off;
pid $run/nginx.pid;
error_log stderr;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path $run/body;
    proxy_temp_path $run/proxy;
    fastcgi_temp_path $run/fastcgi;
    uwsgi_temp_path $run/uwsgi;
    scgi_temp_path $run/scgi;
$("$here/site.sh")
}
NGINX
nginx -c "$run/nginx.conf" -e stderr &
started=$!
export ORIGIN="$ORIGIN_LISTEN"
LISTEN="127.0.0.1:$LITEQUIC_PORT" PROBES="$LITEQUIC_METRICS" LITEQUIC_ADMIN="$admin" "$litequic" run --config "$here/litequic/on.toml" --log-level warn &
started="$started $!"
LISTEN="127.0.0.1:$PLAIN_PORT" PROBES="$PLAIN_METRICS" LITEQUIC_ADMIN="$plain_admin" "$litequic" run --config "$here/litequic/off.toml" --log-level warn &
started="$started $!"

# Each answers, or has ended.
for port in "$LITEQUIC_PORT" "$PLAIN_PORT"; do
    until "$litequic" get --insecure --timeout 2s --output "$run/answer" "https://localhost:$port/ways.json" 2>"$run/why"; do
        for process in $started; do
            kill -0 "$process" 2>/dev/null || { cat "$run/why" >&2; exit 69; }
        done
        sleep 0.2
    done
done

echo "$welcome"
echo
echo "Ctrl-C ends the demo."
wait
