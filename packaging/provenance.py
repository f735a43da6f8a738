#!/usr/bin/env python3
"""Prints where the files of a release come from: an in-toto statement with SLSA provenance v1.

usage: SOURCE_DATE_EPOCH=SECONDS packaging/provenance.py VERSION TOOLS FILE...

TOOLS is a file with a line a tool that built: its name and version. Base images are those that image.sh has noted. The statement names
sources and inputs by their digests, and no time: the same release has the same statement. LITEQUIC_REPOSITORY is the URL of the
repository and LITEQUIC_BUILDER that of what ran the build; without them the statement says that they are unknown. The build writes it
about itself, and nothing else confirms it: level 1 of SLSA's build track.
"""

import glob
import hashlib
import json
import os
import subprocess
import sys

# What the compiler is given, besides the repository.
INPUTS = ["Cargo.lock", "rust-toolchain.toml", "packaging/litequic.profdata.gz", "packaging/litequic.profdata.of"]
# Of packaging/image.sh: a file an architecture, with the base image's name and digest.
BASE_IMAGES = "target/base-images/*"


def main() -> None:
    version, tools, *files = sys.argv[1:]
    repository = os.environ.get("LITEQUIC_REPOSITORY", "")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True, text=True).stdout.strip()
    with open(tools, encoding="utf-8") as file:
        built_by = file.read().splitlines()
    sources = {
        "uri": f"git+{repository or 'file:///unknown'}@refs/tags/v{version}",
        "digest": {"gitCommit": commit},
    }
    inputs = [{"uri": f"file:{path}", "digest": {"sha256": sha256(path)}} for path in INPUTS]
    bases = [base_image(path) for path in sorted(glob.glob(BASE_IMAGES))]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": os.path.basename(path), "digest": {"sha256": sha256(path)}} for path in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{repository}/blob/v{version}/packaging/release.sh" if repository else "urn:litequic:packaging:release.sh",
                "externalParameters": {"version": version, "repository": repository or "unknown"},
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"],
                    "tools": built_by,
                },
                "resolvedDependencies": [sources, *inputs, *bases],
            },
            "runDetails": {"builder": {"id": os.environ.get("LITEQUIC_BUILDER") or "urn:litequic:builder:unknown"}},
        },
    }
    json.dump(statement, sys.stdout, indent=2)
    print()


def base_image(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        image, digest = file.read().split()
    name = f"base image, {os.path.basename(path)}"
    return {"name": name, "uri": f"oci://{image}", "digest": {"sha256": digest.removeprefix("sha256:")}}


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
