#!/bin/sh
# Makes target/dist/litequic-VERSION-TARGET.tar.gz and its SHA-256: the program, manual pages, completions, example
# configurations, documentation, systemd units, the licence. The same program makes the same file, to the byte.
# usage: packaging/tarball.sh [PROGRAM]; without it packaging/pgo.sh builds one with a profile
set -eu
program=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
if [ -z "$program" ]; then
    packaging/pgo.sh
    program=target/release/litequic-pgo
fi

version=$("$program" --version | cut -d ' ' -f 2)
target=$(rustc -vV | sed -n 's/^host: //p')
name=litequic-$version-$target
# Of what is packed, not of today.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"

mkdir -p target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/$name
mkdir -p "$top/bin" "$top/share/man" "$top/share/doc/litequic/examples" "$top/share/bash-completion/completions" \
    "$top/share/zsh/site-functions" "$top/share/fish/vendor_completions.d"

# Names of functions stay, for a panic's backtrace; debug information is removed.
objcopy --strip-debug "$program" "$top/bin/litequic"
"$program" manual --out "$top/share/man/man1"
"$program" completions bash >"$top/share/bash-completion/completions/litequic"
"$program" completions zsh >"$top/share/zsh/site-functions/_litequic"
"$program" completions fish >"$top/share/fish/vendor_completions.d/litequic.fish"
cp config/*.toml "$top/share/doc/litequic/examples/"
# What README.md leads to, but for what one has to build from the sources.
cp -R LICENSE README.md CHANGELOG.md SECURITY.md docs "$top/share/doc/litequic/"
for unit in packaging/systemd/*; do
    [ -f "$unit" ] || continue
    install -D -m 644 -t "$top/lib/systemd/system" "$unit"
    sed -i 's|/usr/bin/litequic|/usr/local/bin/litequic|' "$top/lib/systemd/system/${unit##*/}"
done
# Whatever the umask: all may read, programs run.
chmod -R u=rwX,go=rX "$top"

tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
    --directory "$work" "$name" | gzip --no-name --best >"target/dist/$name.tar.gz"
(cd target/dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "target/dist/$name.tar.gz"
