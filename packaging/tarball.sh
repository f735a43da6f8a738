#!/bin/sh
# Makes target/dist/litequic-VERSION-TARGET.tar.gz, with the layout of /usr/local (tree.sh). The same program makes the same file,
# to the byte.
# usage: packaging/tarball.sh [PROGRAM [TARGET [SPEAKER]]]
# PROGRAM is one for TARGET, a name of rustc's; without it packaging/pgo.sh builds one with a profile, for this machine. SPEAKER
# is a litequic that runs here, for manual and completions, where PROGRAM does not.
set -eu
program=${1:+$(realpath "$1")}
speaker=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
if [ -z "$program" ]; then
    program=$(packaging/pgo.sh)
fi
target=${2:-$(rustc -vV | sed -n 's/^host: //p')}
: "${speaker:=$program}"

version=$("$speaker" --version | cut -d ' ' -f 2)
name=litequic-$version-$target
mkdir -p target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/tree.sh "$program" "$target" "$speaker" "$work/$name" /usr/local
pack "$work" "$name" >"target/dist/$name.tar.gz"
echo "target/dist/$name.tar.gz"
