#!/bin/sh
# Lays out below FOLDER what an installation at PREFIX has: the program, systemd units, manual pages, completions, example
# configurations, documentation, the licence. tarball.sh, deb.sh and rpm.sh pack it.
# usage: packaging/tree.sh PROGRAM TARGET SPEAKER FOLDER PREFIX
# PROGRAM is for TARGET, a name of rustc's. SPEAKER is a litequic that runs here: it writes manual and completions, which are
# the same for all targets.
set -eu
program=$(realpath "$1") target=$2 speaker=$(realpath "$3") prefix=$5
mkdir -p "$4"
top=$(realpath "$4")
cd "$(dirname "$0")/.."
. packaging/reproducible.sh

mkdir -p "$top/bin" "$top/libexec/litequic" "$top/share/man/man5" "$top/share/doc/litequic/docs" "$top/share/doc/litequic/examples" \
    "$top/share/bash-completion/completions" "$top/share/zsh/site-functions" "$top/share/fish/vendor_completions.d"

# Debian's binutils have one for each architecture.
objcopy=${target%%-*}-linux-gnu-objcopy
command -v "$objcopy" >/dev/null || objcopy=objcopy
# Names of functions stay, for a panic's backtrace; what a debugger wants goes. A folder of its own: the unit allows no other program.
"$objcopy" --strip-debug "$program" "$top/libexec/litequic/litequic"
ln -s ../libexec/litequic/litequic "$top/bin/litequic"

"$speaker" manual --out "$top/share/man/man1"
mv "$top/share/man/man1/litequic.toml.5" "$top/share/man/man5/"
"$speaker" completions bash >"$top/share/bash-completion/completions/litequic"
"$speaker" completions zsh >"$top/share/zsh/site-functions/_litequic"
"$speaker" completions fish >"$top/share/fish/vendor_completions.d/litequic.fish"
cp config/*.toml "$top/share/doc/litequic/examples/"
cp LICENSE README.md CHANGELOG.md SECURITY.md "$top/share/doc/litequic/"
for each in docs/*; do
    case $each in
    # Measurements, and screenshots: these are larger than everything else together.
    docs/results | *.png) ;;
    *) cp -R "$each" "$top/share/doc/litequic/docs/" ;;
    esac
done
install -D -m 644 -t "$top/share/doc/litequic/examples/systemd" packaging/systemd/examples/*
install -D -m 644 -t "$top/share/doc/litequic/examples/seccomp" packaging/seccomp/*.json
for unit in packaging/systemd/*.service packaging/systemd/*.socket; do
    install -D -m 644 -t "$top/lib/systemd/system" "$unit"
    sed -i "s|/usr/libexec/litequic|$prefix/libexec/litequic|" "$top/lib/systemd/system/${unit##*/}"
done

# Whatever the umask: all may read, programs run.
chmod -R u=rwX,go=rX "$top"
find "$top" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
