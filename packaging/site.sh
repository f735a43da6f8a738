#!/bin/sh
# Makes target/site: the documents as a site with search, which loads nothing from elsewhere. Checks every link and anchor in it.
# Needs mdbook, npm (for mermaid, which draws the diagrams) and python3.
# usage: packaging/site.sh [URL], that of the repository, where the version's tag is: links to files that are not in the site
# lead there. Without one they are plain text.
set -eu
url=${1:-}
mermaid=11.12.2
cd "$(dirname "$0")/.."

book=target/site-src
rm -rf "$book" target/site
python3 packaging/site/assemble.py "$book" "${url%/}"

# npm checks the package's sum; the file stays in target/ for the next time.
script=target/mermaid-$mermaid.min.js
if [ ! -f "$script" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    npm pack --silent --pack-destination "$work" "mermaid@$mermaid" >"$work/npm.log"
    tar --extract --gzip --file "$work/mermaid-$mermaid.tgz" --directory "$work" package/dist/mermaid.min.js
    mv "$work/package/dist/mermaid.min.js" "$script"
fi
cp "$script" "$book/src/mermaid.min.js"

mdbook build "$book"
python3 packaging/site/links.py target/site
echo "target/site/index.html"
