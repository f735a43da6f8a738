#!/bin/sh
# Prints nginx's two servers: the origin, and the same site by nginx's own TLS. From the environment:
#   ORIGIN_LISTEN, NGINX_LISTEN     where they listen, as nginx's `listen` takes it
#   PAGE, DASH, MEDIA, TLS          folders: the page, dash.js, the video, the certificate
#   LITEQUIC_PORT, PLAIN_PORT, NGINX_PORT           the ports that browsers reach
#   LITEQUIC_METRICS, PLAIN_METRICS                 HOST:PORT of the `admin.probes` of both litequic
#   RESOLVER                        who knows these hosts; may be empty for addresses
set -eu

site() {
    cat <<NGINX
    server_name localhost;
    root $PAGE;
    types {
        text/html html;
        text/css css;
        text/javascript js;
        application/dash+xml mpd;
        video/mp4 mp4 m4s;
    }
    # What is looked at is the way, not a cache.
    add_header Cache-Control no-store;
    # Viewers load from all three servers.
    add_header Content-Security-Policy "default-src 'self'; connect-src 'self' https://*:$LITEQUIC_PORT https://*:$PLAIN_PORT https://*:$NGINX_PORT; media-src 'self' blob:; img-src data:; style-src 'self'; frame-ancestors 'none'";
    add_header Access-Control-Allow-Origin *;
    add_header X-Content-Type-Options nosniff;

    location = /dash.js { root $DASH; }
    location /media/ { alias $MEDIA/; }
    location = /ways.json {
        default_type application/json;
        return 200 '{"litequic": $LITEQUIC_PORT, "plain": $PLAIN_PORT, "nginx": $NGINX_PORT}';
    }

    # For the page's table. A demo shows its counters to every client; anything else keeps them to itself.
    ${RESOLVER:+resolver $RESOLVER valid=5s;}
    location = /metrics/litequic {
        set \$metrics $LITEQUIC_METRICS;
        proxy_pass http://\$metrics/metrics;
    }
    location = /metrics/plain {
        set \$metrics $PLAIN_METRICS;
        proxy_pass http://\$metrics/metrics;
    }
NGINX
}

cat <<NGINX
# The origin, as it would be without litequic too: HTTP/1.1, no TLS.
server {
    listen $ORIGIN_LISTEN;
$(site)
}

# What one has without litequic: nginx's own TLS and HTTP/2.
server {
    listen $NGINX_LISTEN ssl http2;
    ssl_certificate $TLS/tls.crt;
    ssl_certificate_key $TLS/tls.key;
$(site)
}
NGINX
