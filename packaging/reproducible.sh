# shellcheck shell=sh
# What makes the same bytes of the same sources: the time, the paths in programs, order, owners and permissions in archives. Sourced
# in the root of the repository.

# Orders of names, and permissions of what is made, whatever the user has. The compiler sees the folder without symbolic links.
export LC_ALL=C
umask 022
cd -P . || exit

# Of what is packed, not of today.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

# Source files have their paths in messages of panics, and in assertions of C code.
_cargo=${CARGO_HOME:-$HOME/.cargo}
rust_paths="--remap-path-prefix=$PWD=/litequic --remap-path-prefix=$_cargo=/cargo"
c_paths="-ffile-prefix-map=$PWD=/litequic -ffile-prefix-map=$_cargo=/cargo"
export rust_paths c_paths

# SOURCE_DATE_EPOCH for compilers: mimalloc has the time of its compilation in it, and the same sources are to make the same program
# at the next commit, too, or in a target/ that an older one has left.
# shellcheck disable=SC2034 # program.sh and pgo.sh
readonly COMPILED=0

# needs PROGRAM WHAT: ends with 69 where the program that makes WHAT is missing.
needs() {
    command -v "$1" >/dev/null || {
        echo "$2 needs $1: packaging/tools.sh" >&2
        exit 69
    }
}

# The program's version, as Cargo.toml has it.
version_of_sources() {
    sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml
}

# pack PARENT NAME: the folder PARENT/NAME as a tar.gz, to standard output.
pack() {
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --directory "$1" "$2" | gzip --no-name --best
}

# stage_package KIND PROGRAM TARGET SPEAKER: lays out in target/stage what packages of every KIND have in common, and sets stage and share.
stage_package() {
    stage=target/stage
    rm -rf "$stage"
    mkdir -p "$stage/$1" "$stage/out" target/dist
    packaging/tree.sh "$2" "$3" "$4" "$stage/root/usr" /usr
    install -D -m 644 packaging/etc/litequic.toml "$stage/root/etc/litequic/litequic.toml"
    share=$stage/root/usr/share
    gzip --no-name --best "$share"/man/man[15]/*
}

# asset_name FILE: its name, without what GitHub would replace, after which SHA256SUMS had another one. The package itself keeps its
# version, such as 1.0.0~rc.1.
asset_name() {
    basename "$1" | tr '~' '.'
}

# What tools.sh installs.
PATH=$PWD/target/tools/bin:$PWD/target/tools/venv/bin:$PATH
export PATH
