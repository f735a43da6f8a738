#!/bin/sh
# nginx for files, then litequic, which the container ends with.
set -eu
nginx -e stderr -c /etc/litequic/nginx.conf
exec litequic run --config /etc/litequic/litequic.toml
