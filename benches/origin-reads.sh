#!/usr/bin/env bash
# Reads per GB of a response's body from an origin, over TLS and in plaintext, by strace: what large reads cost, and what TLS adds.
# Usage: benches/origin-reads.sh [LITEQUIC [MEGABYTES]]. Needs nginx, openssl and strace. Default settings, one client on loopback.
set -euo pipefail
cd "$(dirname "$0")/.."

litequic=${1:-target/release/litequic}
megabytes=${2:-1000}
folder=$(mktemp -d)
pids=()
end() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap end EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null
head -c "${megabytes}000000" /dev/zero >"$folder/body"
chmod 0755 "$folder" && chmod 0644 "$folder"/*
cat >"$folder/nginx.conf" <<END
daemon off; pid $folder/nginx.pid; error_log stderr; worker_processes 1; user root;
events {}
http {
    access_log off; sendfile on; root $folder;
    server { listen 127.0.0.1:18080; }
    server {
        listen 127.0.0.1:18443 ssl; ssl_protocols TLSv1.3;
        ssl_certificate $folder/cert.pem; ssl_certificate_key $folder/key.pem;
    }
}
END
PATH=$PATH:/usr/sbin nginx -c "$folder/nginx.conf" 2>"$folder/nginx.log" &
pids+=($!)

# measure NAME URL: a line of the table.
measure() {
    local name=$1 url=$2 server tracer log=$folder/$1.strace
    cat >"$folder/$name.toml" <<END
listen.udp = "127.0.0.1:18444"
[[certificates]]
cert = "cert.pem"
key = "key.pem"
[origin]
url = "$url"
END
    [[ $url != https* ]] || printf '[origin.tls]\nca = "cert.pem"\n' >>"$folder/$name.toml"
    "$litequic" run --config "$folder/$name.toml" 2>"$folder/$name.log" &
    server=$!
    pids+=("$server")
    for _ in {1..100}; do
        "$litequic" get --insecure --head https://127.0.0.1:18444/body >/dev/null 2>&1 && break
        sleep 0.1
    done
    # Attached once it serves: what its start reads does not count.
    strace -f -qq -yy -e trace=read,readv,recvfrom,recvmsg -o "$log" -p "$server" &
    tracer=$!
    for _ in {1..100}; do
        grep -q "^TracerPid:[[:space:]]*[1-9]" "/proc/$server/status" && break
        sleep 0.1
    done
    "$litequic" get --insecure --output /dev/null https://127.0.0.1:18444/body
    kill -INT "$tracer"
    wait "$tracer" || true
    kill "$server"
    wait "$server" || true
    # TCP sockets that brought bytes: the origin's, for the client is at UDP.
    awk -v name="$name" -v gb="$megabytes" '
        /TCP/ && match($0, /= [0-9]+$/) { got = substr($0, RSTART + 2) + 0; if (got > 0) { reads++; bytes += got } }
        END { printf "%-10s %7.0f reads per GB, %7.0f bytes each\n", name, reads * 1000 / gb, bytes / reads }' "$log"
}

measure plaintext http://127.0.0.1:18080
measure tls https://127.0.0.1:18443
