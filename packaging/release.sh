#!/bin/sh
# Makes a release in target/dist. packaging/README.md says of what it consists, and how it is verified. The same commit makes the
# same files, to the byte, but for signatures of cosign.
# usage: packaging/release.sh [--rehearse] VERSION [PART...]
#   packages   programs, tarballs, deb, rpm, charts, crate, results, bills of materials; empties target/dist first
#   images     container images, of the tarballs in target/dist
#   finish     notes (target/notes.md), provenance, SHA256SUMS, signatures, of all that is in target/dist
# Without a part all three, in this order. `packages` wants the Debian of the oldest glibc, `images` an engine; so a workflow may
# run them apart, and hand target/dist on.
#   --rehearse          the commit may have no tag, and CHANGELOG.md no section; what the machine has no tools for is skipped, and
#                       nothing is signed
# packaging/tools.sh installs what is needed. From the environment, all optional:
#   LITEQUIC_REPOSITORY       the URL of the repository
#   LITEQUIC_BUILDER          the URL of what runs the build
#   LITEQUIC_RESULTS          the folder of the laboratory's full run (results.sh)
#   RUNTIME_IMAGE             the base of the images, instead of the Dockerfile's; RUNTIME_IMAGE_ARM64: of one of them
#   COSIGN_PRIVATE_KEY        the text of a key of cosign's, and COSIGN_PASSWORD
#   MINISIGN_SECRET_KEY       the text of a key of minisign's that has no password
set -eu
cd "$(dirname "$0")/.."
rehearse=
if [ "${1-}" = --rehearse ]; then
    rehearse=1
    shift
fi
version=${1:?usage: packaging/release.sh [--rehearse] VERSION [PART...]}
shift
[ $# -gt 0 ] || set -- packages images finish

if [ -z "$rehearse" ]; then
    [ -z "$(git status --porcelain)" ] || {
        echo "the work tree has changes that no commit has" >&2
        exit 1
    }
    [ "$(git rev-parse HEAD)" = "$(git rev-parse "v$version^{commit}")" ] || {
        echo "the tag v$version is that of another commit" >&2
        exit 1
    }
fi
# The commit's, whatever the environment has.
unset SOURCE_DATE_EPOCH
. packaging/reproducible.sh
dist=target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# skippable COMMAND...: a rehearsal goes on without what the machine has no tools for (69). Prints what COMMAND prints, the file that
# it has made, and sets `made` to whether it has.
skippable() {
    made=1 status=0
    "$@" >"$work/made" || status=$?
    cat "$work/made"
    [ "$status" = 0 ] || made=
    [ "$status" = 0 ] || { [ "$status" = 69 ] && [ -n "$rehearse" ]; } || exit "$status"
    [ -n "$made" ] || echo "SKIPPED: $*"
}

# The section of CHANGELOG.md; a rehearsal is content with what is to become it.
notes() {
    if [ -n "$rehearse" ] && ! grep -q "^## \[$version\]" CHANGELOG.md; then
        packaging/tag.sh "v$version" Unreleased
    else
        packaging/tag.sh "v$version"
    fi
}

packages() {
    notes >/dev/null
    rm -rf "$dist"
    mkdir -p "$dist"
    host=
    for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
        skippable packaging/program.sh "$target"
        [ -n "$made" ] || continue
        program=$(cat "$work/made")
        # The first runs here, and writes the manual of all.
        : "${host:=$program}"
        packaging/tarball.sh "$program" "$target" "$host"
        case $target in
        *-gnu)
            skippable packaging/deb.sh "$program" "$target" "$host"
            skippable packaging/rpm.sh "$program" "$target" "$host"
            ;;
        esac
    done
    packaging/charts.sh "${LITEQUIC_REPOSITORY:-}"
    skippable packaging/results.sh
    skippable packaging/sbom.sh
    git archive --prefix="litequic-$version/" --format=tar HEAD | gzip --best --no-name >"$dist/litequic-$version-src.tar.gz"
    echo "$dist/litequic-$version-src.tar.gz"
    # For the provenance; `finish` may run elsewhere.
    for tool in rustc cargo cc aarch64-linux-gnu-gcc cargo-zigbuild cargo-deb cargo-generate-rpm objcopy tar gzip zstd; do
        ! command -v "$tool" >/dev/null || "$tool" --version | head -n 1
    done >"$dist/tools"
    ! zig=$(python3 -m ziglang version 2>/dev/null) || echo "ziglang $zig" >>"$dist/tools"
}

images() {
    rm -rf target/base-images
    for architecture in amd64 arm64; do
        if [ -n "$rehearse" ] && ! docker info >/dev/null 2>&1; then
            echo "SKIPPED: packaging/image.sh $architecture: needs a container engine"
        elif [ -n "$rehearse" ] && [ "$architecture" = arm64 ] && [ -z "${RUNTIME_IMAGE_ARM64:-}" ]; then
            echo "SKIPPED: packaging/image.sh arm64: RUNTIME_IMAGE_ARM64 names no base image for it"
        elif [ "$architecture" = arm64 ]; then
            RUNTIME_IMAGE=${RUNTIME_IMAGE_ARM64:-${RUNTIME_IMAGE:-}} packaging/image.sh arm64
        else
            packaging/image.sh "$architecture"
        fi
    done
}

finish() {
    notes >target/notes.md
    [ ! -e "$dist/tools" ] || mv "$dist/tools" target/built-by
    rm -f "$dist"/SHA256SUMS* "$dist/litequic-$version.provenance.json"
    packaging/provenance.py "$version" target/built-by "$dist"/* >"$work/provenance"
    mv "$work/provenance" "$dist/litequic-$version.provenance.json"
    (cd "$dist" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
    chmod 644 "$dist"/*
    [ -z "$rehearse" ] || return 0

    # One signature each of the sums, which have the rest.
    signed=
    if [ -n "${COSIGN_PRIVATE_KEY:-}" ]; then
        COSIGN_PASSWORD=${COSIGN_PASSWORD:-} cosign sign-blob --yes --key env://COSIGN_PRIVATE_KEY --tlog-upload=false \
            --output-signature "$dist/SHA256SUMS.sig" "$dist/SHA256SUMS" >/dev/null
        signed="$signed SHA256SUMS.sig"
    fi
    if [ -n "${MINISIGN_SECRET_KEY:-}" ]; then
        (umask 077 && printf '%s\n' "$MINISIGN_SECRET_KEY" >"$work/minisign.key")
        minisign -S -s "$work/minisign.key" -m "$dist/SHA256SUMS" -x "$dist/SHA256SUMS.minisig" \
            -c "signature of litequic $version" -t "litequic $version" </dev/null >/dev/null
        signed="$signed SHA256SUMS.minisig"
    fi
    if [ -z "$signed" ]; then
        echo "UNSIGNED: neither COSIGN_PRIVATE_KEY nor MINISIGN_SECRET_KEY is set"
        printf '\nThis release is not signed.\n' >>target/notes.md
    else
        # cosign's is its user's alone.
        chmod 644 "$dist"/SHA256SUMS*
        echo "signed:$signed"
    fi
}

for part; do
    case $part in
    packages | images | finish) "$part" ;;
    *)
        echo "$part: no part of a release" >&2
        exit 64
        ;;
    esac
done
