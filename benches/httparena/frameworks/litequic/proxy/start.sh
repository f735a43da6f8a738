#!/bin/sh
# nginx for files, then litequic, which the container ends with. nginx' `worker_processes auto` counts the machine's
# processors rather than the container's.
set -eu
nginx -e stderr -c /etc/litequic/nginx.conf -g "worker_processes $(nproc);"
exec litequic run --config /etc/litequic/litequic.toml
