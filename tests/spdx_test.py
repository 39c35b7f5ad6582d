#!/usr/bin/env python3
"""Checks the list of parts that tools/spdx writes.

    spdx_test.py            makes a small folder, lists its parts and checks the list
    spdx_test.py FOLDER     checks the list of a bundle (tools/bundle)

Checks what SPDX 2.3 requires of a JSON document. Exits with 77 if this is not Debian.
"""
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = "usr/share/doc/lockstep/lockstep.spdx.json"
SPDX_ID = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")
LICENCE = re.compile(r"NOASSERTION|[A-Za-z0-9.+-]+( (AND|OR) [A-Za-z0-9.+-]+)*")
PACKAGE_FIELDS = {"name", "SPDXID", "downloadLocation", "filesAnalyzed", "licenseConcluded", "licenseDeclared",
                  "copyrightText"}
FILE_FIELDS = {"fileName", "SPDXID", "checksums", "licenseConcluded", "licenseInfoInFiles", "copyrightText"}


def spdx_module():
    loader = importlib.machinery.SourceFileLoader("spdx", str(ROOT / "tools/spdx"))
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("spdx", loader))
    loader.exec_module(module)
    return module


def document_problems(document):
    """Yields violations of SPDX 2.3 (sections 6 to 11)."""
    for key, value in {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT"}.items():
        if document.get(key) != value:
            yield f"{key}: expected {value}, found {document.get(key)}"
    if not re.fullmatch(r"https://[^#]+", document["documentNamespace"]):
        yield "documentNamespace: expected a URI without a fragment"
    creation = document["creationInfo"]
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", creation["created"]) or not creation["creators"]:
        yield f"creationInfo: found {creation}"
    elements = document["packages"] + document["files"]
    ids = [each["SPDXID"] for each in elements]
    if len(set(ids)) != len(ids) or not all(SPDX_ID.fullmatch(each) for each in ids):
        yield "SPDXIDs are not valid and different"
    for fields, found in (PACKAGE_FIELDS, document["packages"]), (FILE_FIELDS, document["files"]):
        for each in found:
            if fields - set(each):
                yield f"{each['SPDXID']}: lacks {fields - set(each)}"
    extracted = {each["licenseId"] for each in document.get("hasExtractedLicensingInfos", [])}
    for each in document["packages"]:
        declared = each["licenseDeclared"]
        named = set(re.findall(r"LicenseRef-[A-Za-z0-9.-]+", declared))
        if not LICENCE.fullmatch(declared) or named - extracted:
            yield f"{each['name']}: licenseDeclared is {declared}"
    for each in document["relationships"]:
        for end in "spdxElementId", "relatedSpdxElement":
            if each[end] not in [*ids, "SPDXRef-DOCUMENT"]:
                yield f"{each}: {end} does not exist"


def folder_problems(document, folder):
    """Yields differences between the list and the folder."""
    files = {each["fileName"]: each for each in document["files"]}
    found = {f"./{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()} - {f"./{LIST}"}
    if set(files) != found:
        yield f"listed, but not there, or the reverse: {sorted(set(files) ^ found)}"
    contained = {each["relatedSpdxElement"] for each in document["relationships"]
                 if each["relationshipType"] == "CONTAINS"}
    for name in sorted(set(files) & found):
        data = (folder / name).read_bytes()
        sums = {each["algorithm"]: each["checksumValue"] for each in files[name]["checksums"]}
        if sums != {"SHA1": hashlib.sha1(data).hexdigest(), "SHA256": hashlib.sha256(data).hexdigest()}:
            yield f"{name}: checksums are {sums}"
        if files[name]["SPDXID"] not in contained:
            yield f"{name}: belongs to no package"


def check(folder):
    document = json.loads((folder / LIST).read_text())
    problems = [*document_problems(document), *folder_problems(document, folder)]
    assert not problems, "\n".join(problems)
    return document


def owner_of(document, file):
    file_id = next(each["SPDXID"] for each in document["files"] if each["fileName"] == file)
    owners = [each["spdxElementId"] for each in document["relationships"]
              if (each["relatedSpdxElement"], each["relationshipType"]) == (file_id, "CONTAINS")]
    assert len(owners) == 1, (file, owners)
    return next(each for each in document["packages"] if each["SPDXID"] == owners[0])


def check_small_folder():
    library = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True,
                             check=False).stdout.strip() or "/lib/x86_64-linux-gnu/libc.so.6"
    with tempfile.TemporaryDirectory() as temporary:
        folder, origins = pathlib.Path(temporary) / "bundle", pathlib.Path(temporary) / "origins"
        (folder / "lib").mkdir(parents=True)
        shutil.copy(library, folder / "lib/libc.so.6")
        (folder / "lib/lib odd.so+1").write_text("of no package")
        (folder / "own").write_text("ours")
        origins.write_text(f"lib/libc.so.6\t{library}\nlib/lib odd.so+1\t{temporary}/origins\n")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "86400"}
        command = [ROOT / "tools/spdx", folder, origins]
        subprocess.run(command, check=True, env=environment)
        document = check(folder)
        assert document["creationInfo"]["created"] == "1970-01-02T00:00:00Z"
        libc = owner_of(document, "./lib/libc.so.6")
        version = subprocess.run(["dpkg-query", "--show", "-f", "${Version}", "libc6"], capture_output=True, text=True,
                                 check=True).stdout
        assert (libc["name"], libc["versionInfo"]) == ("libc6", version), libc
        assert libc["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/debian/libc6@2."), libc
        assert owner_of(document, "./lib/lib odd.so+1")["licenseDeclared"] == "NOASSERTION"
        own = owner_of(document, "./own")
        assert own["name"] == "lockstep" and f"VERSION {own['versionInfo']} " in (ROOT / "CMakeLists.txt").read_text()
        first = (folder / LIST).read_bytes()
        subprocess.run(command, check=True, env=environment)
        assert (folder / LIST).read_bytes() == first, "expected the same list for the same parts"
        (folder / "own").write_text("changed")
        assert list(folder_problems(document, folder)), "the check does not notice another file"
        origins.write_text("lib/gone\t/x\n")
        failed = subprocess.run(command, check=False, capture_output=True, text=True)
        assert failed.returncode == 1 and "lib/gone" in failed.stderr, failed


def check_licences():
    module = spdx_module()
    head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    cases = [
        ("Files: *\nLicense: Expat\n text", "MIT"),
        ("Files: *\nLicense: GPL-2+ or Apache-2.0\n\nLicense: GPL-2+\n text", "GPL-2.0-or-later OR Apache-2.0"),
        ("Files: *\nLicense: Zlib, and BSL-1.0\n", "Zlib AND BSL-1.0"),
        ("Files: *\nLicense: Odd (1)\n\nLicense: Odd (1)\n Do as you like.", "LicenseRef-Debian-Odd--1-"),
        ("Files: a\nLicense: Expat\n text", "NOASSERTION"),
    ]
    for text, expected in cases:
        licences = module.Licences()
        declared, _ = licences.declared(head + text)
        assert declared == expected, (text, declared)
        for reference, info in licences.extracted.items():
            assert info["licenseId"] == reference and info["extractedText"] == "Do as you like.", info
    declared, comment = module.Licences().declared("see /usr/share/common-licenses/LGPL-2.1.")
    assert (declared, comment) == ("NOASSERTION", "The copyright file names: LGPL-2.1"), comment
    _, comment = module.Licences().declared(head + "Files: *\nLicense: Expat\n\nFiles: b\nLicense: Ms-PL\n")
    assert comment == "Parts have other licences: Ms-PL", comment


def main():
    if shutil.which("dpkg-query") is None:
        print("skipped: Debian's dpkg is needed")
        sys.exit(77)
    if len(sys.argv) > 1:
        document = check(pathlib.Path(sys.argv[1]))
        names = {each["name"] for each in document["packages"]}
        assert {"lockstep", "libc6", "libstdc++6"} <= names, names
        print(f"{len(document['files'])} files of {len(names)} packages are listed")
        return
    check_licences()
    check_small_folder()


if __name__ == "__main__":
    main()
