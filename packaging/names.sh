#!/bin/sh
# RUSTC_WRAPPER of pgo.sh: gives each crate the same identity in every build, so that a profile still fits after its dependencies
# have changed. A function's symbol has a hash of its crate's identity in it, and that is -C metadata=HASH, which Cargo makes of
# the crate's features and of the identities of all its dependencies: one more feature of one of them renames every function of
# litequic. In its place stands the package's name and version; litequic's own have no version. rustc refuses two units with one
# identity in a program ("colliding StableCrateId") rather than mixing them up. -C extra-filename, by which files differ, stays.
# usage: RUSTC_WRAPPER=packaging/names.sh cargo build; Cargo calls names.sh RUSTC ARGUMENTS...
set -eu
rustc=$1
shift
# A query, as rustc -vV, has no package.
if [ -n "${CARGO_PKG_NAME-}" ]; then
    case $CARGO_PKG_NAME in
    litequic | litequic-*) identity=$CARGO_PKG_NAME ;;
    *) identity=$CARGO_PKG_NAME@$CARGO_PKG_VERSION ;;
    esac
    count=$#
    while [ "$count" -gt 0 ]; do
        argument=$1
        shift
        case $argument in
        metadata=*) argument=metadata=$identity ;;
        -Cmetadata=*) argument=-Cmetadata=$identity ;;
        esac
        set -- "$@" "$argument"
        count=$((count - 1))
    done
fi
exec "$rustc" "$@"
