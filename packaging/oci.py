#!/usr/bin/env python3
"""Makes an image archive that is the same twice of one that `docker save` wrote.

usage: docker save IMAGE | packaging/oci.py NAME:TAG FILE

FILE is an OCI image layout as a tar, with the manifest.json of `docker save` beside it: for docker and podman load, skopeo, crane
and ctr. Times after SOURCE_DATE_EPOCH, in layers and in the image's history, become that one; layers without any, such as a
base image's, keep their bytes and digests.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
EPOCH_TEXT = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
OCI = "application/vnd.oci.image."


def main() -> None:
    name, path = sys.argv[1:]
    with tempfile.TemporaryFile() as saved:
        while chunk := sys.stdin.buffer.read(1 << 20):
            saved.write(chunk)
        saved.seek(0)
        with tarfile.open(fileobj=saved) as archive:
            [image] = json.load(archive.extractfile("manifest.json"))
            config = json.load(archive.extractfile(image["Config"]))
            layers = [clamped(archive.extractfile(layer).read()) for layer in image["Layers"]]
    write(path, name, config, layers)


def clamped(layer: bytes) -> bytes:
    """The layer, an uncompressed tar, without a time after EPOCH."""
    if layer[:2] == b"\x1f\x8b":
        layer = subprocess.run(["gzip", "-dc"], input=layer, stdout=subprocess.PIPE, check=True).stdout
    out = io.BytesIO()
    changed = False
    with (
        tarfile.open(fileobj=io.BytesIO(layer)) as before,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in before:
            changed |= member.mtime > EPOCH
            member.mtime = min(int(member.mtime), EPOCH)
            for key in ("mtime", "atime", "ctime"):
                member.pax_headers.pop(key, None)
            after.addfile(member, before.extractfile(member) if member.isreg() else None)
    return out.getvalue() if changed else layer


def write(path: str, name: str, config: dict, layers: list[bytes]) -> None:
    config["created"] = min(config.get("created", EPOCH_TEXT)[:19] + "Z", EPOCH_TEXT)
    for entry in config.get("history", []):
        if "created" in entry:
            entry["created"] = min(entry["created"][:19] + "Z", EPOCH_TEXT)
    config["rootfs"]["diff_ids"] = [digest(layer) for layer in layers]

    blobs = {}

    def blob(kind: str, data: bytes) -> dict:
        blobs[digest(data)] = data
        return {"mediaType": OCI + kind, "digest": digest(data), "size": len(data)}

    compress = ["gzip", "--no-name", "--best"]
    packed = [subprocess.run(compress, input=layer, stdout=subprocess.PIPE, check=True).stdout for layer in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": blob("config.v1+json", text(config)),
        "layers": [blob("layer.v1.tar+gzip", layer) for layer in packed],
    }
    repository, tag = name.rsplit(":", 1)
    described = blob("manifest.v1+json", text(manifest))
    described["platform"] = {key: config[key] for key in ("architecture", "os", "variant") if key in config}
    described["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{repository}:{tag}",
        "org.opencontainers.image.ref.name": tag,
    }
    saved = {
        "Config": file_of(manifest["config"]["digest"]),
        "RepoTags": [name],
        "Layers": [file_of(layer["digest"]) for layer in manifest["layers"]],
    }
    files = {
        "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
        "index.json": text({"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [described]}),
        "manifest.json": text([saved]),
    } | {file_of(each): data for each, data in blobs.items()}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, EPOCH
            archive.addfile(entry)
        for file, data in sorted(files.items()):
            entry = tarfile.TarInfo(file)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, EPOCH
            archive.addfile(entry, io.BytesIO(data))


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def file_of(of: str) -> str:
    return "blobs/" + of.replace(":", "/")


def text(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
