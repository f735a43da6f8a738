"""Puts the documents into one folder for mdBook, and has their links lead inside it.

usage: assemble.py FOLDER [URL]

docs/SUMMARY.md is the table of contents. Documents outside docs/ get a name in the book (OUTER); the examples in config/ become
one page. A link to any other file of the repository leads to the version's tag at URL; without URL it becomes plain text.
"""

import os
import re
import shutil
import sys
from pathlib import Path

# Documents outside docs/, by their path in the repository, with their place in the book.
OUTER = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "benches/lab/README.md": "laboratory.md",
    "benches/lab/evidence/README.md": "evidence/index.md",
    "benches/lab/evidence/attempts.md": "evidence/attempts.md",
    "benches/lab/evidence/comparison.md": "evidence/comparison.md",
    "benches/lab/evidence/costs.md": "evidence/costs.md",
    "benches/lab/evidence/decisions.md": "evidence/decisions.md",
    "benches/lab/evidence/pages-late.svg": "evidence/pages-late.svg",
    "benches/lab/evidence/pages.md": "evidence/pages.md",
    "benches/lab/evidence/papers.md": "evidence/papers.md",
    "benches/lab/evidence/paths.md": "evidence/paths.md",
    "demo/README.md": "demo.md",
    "helm/litequic/README.md": "chart-edge.md",
    "helm/litequic-sidecar/README.md": "chart-sidecar.md",
    "packaging/README.md": "packaging.md",
}
# docs/README.md is the front page; links to the repository's README.md lead there.
SKIPPED = ["README.md"]
EXAMPLES = "examples.md"


def in_book(path):
    """The place of a repository's file in the book, with an anchor if it is part of a page; None if it is not there."""
    if path in OUTER:
        return OUTER[path]
    if path == "config":
        return EXAMPLES
    if path.startswith("config/") and path.endswith(".toml"):
        return f"{EXAMPLES}#{path.removeprefix('config/').replace('.', '')}"
    if path.startswith("docs/") and Path(path).is_file():
        place = path.removeprefix("docs/")
        return re.sub(r"(^|/)README\.md$", r"\1index.md", place)
    return None


def code(text):
    """For each character, whether it is in a fenced block or in a code span."""
    mask, fenced = [], False
    for line in text.splitlines(keepends=True):
        fence = line.lstrip().startswith("```")
        if fence or fenced:
            mask += [True] * len(line)
            fenced ^= fence
        else:
            for index, part in enumerate(line.split("`")):
                mask += [index % 2 == 1] * (len(part) + 1)
            mask.pop()
    return mask


def opening(text, end):
    """Where the text of a link begins whose closing bracket is at `end`."""
    depth = 0
    for at in range(end - 1, -1, -1):
        if text[at] == "]":
            depth += 1
        elif text[at] == "[":
            if depth == 0:
                return at
            depth -= 1
    raise ValueError("a link without a beginning")


def rewritten(text, path, place, outside):
    """A document's text with its links as they have to be in the book."""
    mask, out, done = code(text), [], 0
    for link in re.finditer(r"\]\(([^()\s]*)\)", text):
        target, _, anchor = link[1].partition("#")
        if mask[link.start()] or not target or re.match(r"[a-z]+:", target):
            continue
        aim = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if not os.path.exists(aim):
            raise ValueError(f"{path}: {link[1]} leads nowhere")
        within = in_book(aim)
        if within is not None:
            within, _, part = within.partition("#")
            relative = os.path.relpath(within, os.path.dirname(place) or ".")
            anchor = anchor or part
            out += [text[done : link.start()], f"]({relative}{'#' if anchor else ''}{anchor})"]
        elif outside:
            kind = "tree" if os.path.isdir(aim) else "blob"
            where = outside.replace("KIND", kind)
            out += [text[done : link.start()], f"]({where}/{aim}{'#' if anchor else ''}{anchor})"]
        else:
            begin = opening(text, link.start())
            if begin < done or text[begin - 1 : begin] == "!":
                raise ValueError(f"{path}: {link[1]} cannot become plain text")
            out += [text[done:begin], text[begin + 1 : link.start()]]
        done = link.end()
    return "".join(out) + text[done:]


def examples():
    """A page with the files of config/."""
    page = ["# Example configurations\n\nEach file passes `litequic check`; the tests run it.\n"]
    for file in sorted(Path("config").glob("*.toml")):
        page.append(f"\n## {file.name}\n\n```toml\n{file.read_text().rstrip()}\n```\n")
    return "".join(page)


def main():
    book, url = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    version = re.search(r'(?m)^version = "(.*)"', Path("Cargo.toml").read_text())[1]
    outside = f"{url}/KIND/v{version}" if url else None
    pages = {path: in_book(path) for path in OUTER if path not in SKIPPED}
    for file in sorted(Path("docs").rglob("*")):
        if file.is_file():
            pages[str(file)] = in_book(str(file))
    source = book / "src"
    source.mkdir(parents=True)
    for path, place in pages.items():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            (source / place).write_text(rewritten(Path(path).read_text(), path, place, outside))
        else:
            shutil.copyfile(path, source / place)
    (source / EXAMPLES).write_text(examples())

    summary = (source / "SUMMARY.md").read_text()
    listed = set(re.findall(r"\]\(([^()\s]+)\)", summary))
    missing = [path for path, place in pages.items() if place.endswith(".md") and place not in listed | {"SUMMARY.md"}]
    if missing:
        sys.exit(f"docs/SUMMARY.md does not list {', '.join(missing)}")

    here = Path(__file__).parent
    toml = (here / "book.toml").read_text()
    if url:
        link = f'[output.html]\ngit-repository-url = "{url}"\ngit-repository-icon = "fas-code-fork"\n'
        toml = toml.replace("[output.html]\n", link)
    (book / "book.toml").write_text(toml)
    for name in ["style.css", "diagrams.js"]:
        shutil.copyfile(here / name, book / name)
    print(f"{sum(place.endswith('.md') for place in pages.values())} pages in {source}")


try:
    main()
except ValueError as error:
    sys.exit(str(error))
