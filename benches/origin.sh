#!/bin/sh
# Runs nginx as the origin of a measurement, in one process, until it is killed: the files of WORK/root, and /sink, which
# reads uploads and answers 204. At /v1/traces it takes spans, and answers 200.
# usage: benches/origin.sh WORK PORT [TLS CERT KEY]; with TLS at the port TLS, too, and HTTP/2 there to clients that offer it. nginx,
# which gives up being root, must be able to read WORK
# Needs nginx. At 127.0.0.1 to 127.0.0.64 alone.
set -eu
work=$1 port=$2
addresses=$(seq --format "listen 127.0.0.%.0f:$port;" 64 | tr '\n' ' ')
secure=${3:+"listen 127.0.0.1:$3 ssl http2; ssl_protocols TLSv1.3; ssl_certificate $4; ssl_certificate_key $5;"}

cat >"$work/nginx.conf" <<CONF
daemon off;
master_process off; # one process, so that none is left when it is killed
pid $work/nginx.pid;
error_log $work/error.log;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_body_temp_path $work/body; proxy_temp_path $work/proxy; fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi; scgi_temp_path $work/scgi;
    server {
        $addresses
        $secure
        root $work/root;
        client_max_body_size 0;
        location = /v1/traces { proxy_pass http://127.0.0.1:$port/accepted; }
        location /accepted { return 200; }
        location /sink { proxy_pass http://127.0.0.1:$port/discard; }
        location /discard { return 204; }
    }
}
CONF
exec "$(command -v nginx || echo /usr/sbin/nginx)" -p "$work" -e "$work/error.log" -c "$work/nginx.conf"
