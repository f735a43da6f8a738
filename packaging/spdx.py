#!/usr/bin/env python3
"""Prints as SPDX 2.3 (JSON) what a CycloneDX file of cargo-cyclonedx says: packages, versions, licences, digests, dependencies.

usage: SOURCE_DATE_EPOCH=SECONDS packaging/spdx.py FILE
"""

import json
import os
import re
import sys
import time
import uuid


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    bom = json.loads(text)
    root = bom["metadata"]["component"]
    components = [root, *bom.get("components", [])]
    ids = {component["bom-ref"]: f"SPDXRef-Package-{number}-{spelt(component)}" for number, component in enumerate(components)}
    # Crates that run in a build and are not in the program.
    excluded = {component["bom-ref"] for component in components if component.get("scope") == "excluded"}
    depends = [
        related(ids[on], "BUILD_DEPENDENCY_OF", ids[each["ref"]])
        if on in excluded and each["ref"] not in excluded
        else related(ids[each["ref"]], "DEPENDS_ON", ids[on])
        for each in bom.get("dependencies", [])
        if each["ref"] in ids
        for on in each.get("dependsOn", [])
    ]
    name = f"{root['name']}-{root['version']}"
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        # Unique as its contents are, and not an address.
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{uuid.uuid5(uuid.NAMESPACE_OID, text)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "creators": ["Tool: cargo-cyclonedx", "Tool: litequic-packaging-spdx.py"],
        },
        "packages": [package(component, ids[component["bom-ref"]]) for component in components],
        "relationships": [related("SPDXRef-DOCUMENT", "DESCRIBES", ids[root["bom-ref"]]), *depends],
    }
    json.dump(document, sys.stdout, indent=2)
    print()


def spelt(component: dict) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", f"{component['name']}-{component['version']}")


def related(a: str, how: str, b: str) -> dict:
    return {"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}


def package(component: dict, identifier: str) -> dict:
    described = {
        "SPDXID": identifier,
        "name": component["name"],
        "versionInfo": component["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence(component),
        "copyrightText": "NOASSERTION",
    }
    digests = [digest for digest in component.get("hashes", []) if digest["alg"] == "SHA-256"]
    if digests:
        described["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest["content"]} for digest in digests]
    if "purl" in component:
        reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component["purl"]}
        described["externalRefs"] = [reference]
    return described


def licence(component: dict) -> str:
    for each in component.get("licenses", []):
        found = each.get("expression") or each.get("license", {}).get("id")
        if found:
            return found
    return "NOASSERTION"


if __name__ == "__main__":
    main()
