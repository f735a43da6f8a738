#!/usr/bin/env bash
# size.sh PROGRAM: whether the container image with PROGRAM, for x86-64, is small enough unpacked, without a container engine. Adds up what
# the Dockerfile's last stage copies and what its base image has.
program=$(realpath "$1")
cd "$(dirname "$0")/../.." || exit
# shellcheck source=packaging/verify/checks.sh
. packaging/verify/checks.sh
trap 'rm -rf "$work"' EXIT

# gcr.io/distroless/base-nossl-debian12 for x86-64: its Debian packages, measured on 2026-11-29.
readonly BASE=14640000

# As tree.sh and the Dockerfile have it.
objcopy --strip-debug "$program" "$work/litequic"
bytes=$((BASE + $(cat "$work/litequic" "$(gcc -print-file-name=libgcc_s.so.1)" LICENSE packaging/container/litequic.toml | wc --bytes)))
printf 'the image has %d.%d MB, at most %d\n' $((bytes / 1000000)) $((bytes / 100000 % 10)) $((most_image_bytes / 1000000))
((bytes < most_image_bytes))
