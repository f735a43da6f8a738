#!/bin/sh
# Fetches dash.js from npm, at this version and no other content than this, for the page beside it.
# usage: dash.sh FOLDER
set -eu
version=5.2.1
sha512=axcJmLeJCTJMLUfQRErUJB1KOiU5iHF+DMLBc3FKeox1HPYtGUQlC6Xm5Mm6vhBUR3CHHLIPOqw0JDIqMtP+Dw==

folder=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "dashjs@$version" >/dev/null
found=$(openssl dgst -sha512 -binary "dashjs-$version.tgz" | openssl base64 -A)
if [ "$found" != "$sha512" ]; then
    echo "dashjs-$version.tgz is not what it was: sha512-$found" >&2
    exit 1
fi
tar -xzf "dashjs-$version.tgz" package/LICENSE.md package/dist/modern/umd/dash.mediaplayer.min.js
cp package/LICENSE.md "$folder/dash.LICENSE.md"
cp package/dist/modern/umd/dash.mediaplayer.min.js "$folder/dash.js"
