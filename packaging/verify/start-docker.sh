#!/usr/bin/env bash
# start-docker.sh ARCHIVE: from nothing to a response over HTTP/3, as docs/start.md says: loads the image of a release, makes a
# certificate, runs the image before a server on this machine, requests a page. Prints how long that took. Needs docker, openssl,
# python3 and a free port 8443. Leaves nothing behind but the image.
archive=$(realpath "$1")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

name=litequic-start-$$
server=
end() {
    docker rm -f "$name" >/dev/null 2>&1 || true
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# The server that is there before litequic is.
mkdir "$work/site"
echo "a page" >"$work/site/index.html"
python3 - "$work/site" >"$work/port" <<'SERVER' &
import functools
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=sys.argv[1]))
print(server.server_port, flush=True)
server.serve_forever()
SERVER
server=$!
check "a server runs" wait_for 10 test -s "$work/port"

mkdir "$work/tls"
# The container's user is another.
chmod 0755 "$work" "$work/tls"
began=$(date +%s%N)
check "docker load" says '^Loaded image' docker load --quiet --input "$archive"
image=$(sed -n 's/^Loaded image: //p' "$work/out")
certificate tls localhost
mv "$work"/tls.* "$work/tls/"
check "docker run" docker run --detach --name "$name" --network host --read-only --cap-drop ALL --security-opt no-new-privileges \
    --volume "$work/tls:/tls:ro" --env "LITEQUIC_ORIGIN=127.0.0.1:$(cat "$work/port")" "$image"
get() {
    docker run --rm --network host --volume "$work/tls/tls.crt:/ca.crt:ro" "$image" get --ca /ca.crt \
        --resolve localhost:8443:127.0.0.1 https://localhost:8443/
}
check "a response over HTTP/3" wait_for 20 says '^a page$' get
printf 'start: %d s\n' $((($(date +%s%N) - began + 999999999) / 1000000000))
finish
