#!/bin/sh
# Makes target/dist/litequic-VERSION-image-ARCHITECTURE.tar, the container image with the program of that architecture's tarball in
# target/dist. The Dockerfile's last stage is all that runs, so another architecture needs no emulation. The same tarball and the same base
# image make the same file, to the byte. target/base-images/ARCHITECTURE then has the base image's name and digest, for the provenance.
# usage: packaging/image.sh amd64|arm64; needs Docker Engine 25 or newer with buildx, python3, and the C compiler that linked the program. From
# the environment, both optional:
#   RUNTIME_IMAGE          the base image, for a mirror or a digest; otherwise the Dockerfile's
#   LITEQUIC_REPOSITORY    the URL of the repository, for a label
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
architecture=${1:?usage: packaging/image.sh amd64|arm64}
case $architecture in
amd64) target=x86_64-unknown-linux-gnu compiler=gcc ;;
arm64) target=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
*)
    echo "usage: packaging/image.sh amd64|arm64" >&2
    exit 64
    ;;
esac
version=$(version_of_sources)
name=litequic-$version
built=litequic-release:$version-$architecture

# A tag's image changes. This is the one of today; a base image that is in no registry has the digest of its configuration alone.
base=${RUNTIME_IMAGE:-$(sed -n 's/^ARG RUNTIME_IMAGE=//p' Dockerfile)}
docker pull --quiet --platform "linux/$architecture" "$base" >/dev/null 2>&1 || docker image inspect "$base" >/dev/null
repository=$(echo "${base%@*}" | sed 's|:[^/]*$||')
digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}{{.Id}}' "$base" |
    sed -n -e "s|^$repository@||p" -e '/^sha256:/p' | head -n 1)
mkdir -p target/base-images
echo "${base%@*} $digest" >"target/base-images/$architecture"

work=$(mktemp -d)
trap 'rm -rf "$work"; docker image rm "$built" >/dev/null 2>&1 || true' EXIT
mkdir -p "$work/program" "$work/context/packaging/container"
tar --extract --file "target/dist/$name-$target.tar.gz" --directory "$work/program" --strip-components 3 "$name-$target/libexec/litequic/litequic"
needs "$compiler" "the image for $architecture"
cp "$("$compiler" -print-file-name=libgcc_s.so.1)" "$work/program/"
touch --date="@$SOURCE_DATE_EPOCH" "$work/program/libgcc_s.so.1"
# Copies, because layers have the permissions and times of files in a checkout, which each has its own.
cp LICENSE "$work/context/"
cp packaging/container/litequic.toml "$work/context/packaging/container/"
sed -n -e '/^ARG RUNTIME_IMAGE=/p' -e '/^FROM .* AS image$/,$p' Dockerfile >"$work/context/Dockerfile"
find "$work/context" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +

# The folder stands for the stage of this name; the stages before the last are cut off, as an engine asks a registry for their base images.
# No attestations: the engine would write times into them. No cache: its layers may have times of an older commit.
BUILDX_NO_DEFAULT_ATTESTATIONS=1 DOCKER_BUILDKIT=1 docker build --quiet --no-cache --platform "linux/$architecture" --target image \
    --build-context "program=$work/program" --tag "$built" \
    --build-arg "RUNTIME_IMAGE=$base" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --build-arg "CREATED=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)" --build-arg "SOURCE=${LITEQUIC_REPOSITORY:-unknown}" \
    --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" "$work/context" >/dev/null
docker save "$built" | packaging/oci.py "litequic:$version" "target/dist/$name-image-$architecture.tar"
echo "target/dist/$name-image-$architecture.tar"
