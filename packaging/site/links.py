"""Checks the links of a site: each leads to a file and an anchor in it, and no page loads anything from elsewhere.

usage: links.py FOLDER
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that have the browser load something, as opposed to links that a reader follows.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("source", "srcset")}


class Page(HTMLParser):
    """The anchors of a page, and its links: tag, attribute, target."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif value and ((tag, name) == ("a", "href") or (tag, name) in LOADED):
                self.links.append((tag, name, value))


def main():
    root = Path(sys.argv[1]).resolve()
    # A page for wrong addresses has addresses from the site's root: it is served at any depth.
    pages = {file: Page(file) for file in sorted(root.rglob("*.html")) if file.name != "404.html"}
    broken, checked = [], 0
    for file, page in pages.items():
        for tag, name, value in page.links:
            target = urlsplit(value)
            where = f"{file.relative_to(root)}: {value}"
            if target.scheme or target.netloc:
                if (tag, name) in LOADED and target.scheme != "data":
                    broken.append(f"{where} is loaded from elsewhere")
                continue
            checked += 1
            aim = (file.parent / unquote(target.path)).resolve() if target.path else file
            if aim.is_dir():
                aim /= "index.html"
            if not aim.is_file() or root not in aim.parents:
                broken.append(f"{where} leads nowhere")
            elif target.fragment and aim in pages and unquote(target.fragment) not in pages[aim].anchors:
                broken.append(f"{where}: no such anchor")
    print(f"{len(pages)} pages, {checked} links")
    if not checked or broken:
        sys.exit("\n".join(broken) or "no links were found")


main()
