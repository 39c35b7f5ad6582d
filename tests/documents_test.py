#!/usr/bin/env python3
"""The documents stay short and true: lengths, links, anchors, paths, the list of folders and the version.

README has at most 800 words, as `wc -w` counts them. No table cell is longer than 200 characters, except in
documents whose tables other tests compare. Relative links lead to files and anchors that exist. A path of the
repository in `code` exists. docs/design.md names every top-level folder and every folder of the programs. The version
of project() in CMakeLists.txt is the one that the programs, the chart and the documents name.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

WORDS_MAX = 800
CELL_MAX = 200
TOP_DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md")
# Their links and paths are checked too.
FOLDER_DOCUMENTS = ("charts/lockstep/README.md", "deploy/README.md", "examples/README.md")
# Other tests compare their tables.
OWNED_TABLES = ("docs/trainingjob.md", "docs/api-server.md", "docs/client-semantics.md",
                *FOLDER_DOCUMENTS)
# Every folder in these is in the list of docs/design.md.
LISTED_WHOLE = ("common", "kernels", "agent", "controller", "local", "cli")

# The version of the programs, by file; every match has to be equal to project()'s.
IMAGE = r"lockstep:(\d+\.\d+\.\d+)"
VERSIONS = {
    "common/base/version.h": r'kVersion\[\] = "([^"]*)"',
    "charts/lockstep/Chart.yaml": r"(?m)^(?:version|appVersion): (.*)$",
    "tests/agent/node/metrics_test.cc": r'version=\\"([^"\\]*)',
    "SECURITY.md": r"Lockstep is version (\d+\.\d+\.\d+)",
    "Dockerfile": IMAGE,
    "README.md": IMAGE,
    "docs/cluster.md": IMAGE,
    "deploy/README.md": r"(?:lockstep:|newTag: )(\d+\.\d+\.\d+)",
}

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
PATH = re.compile(r"[\w.+@-]+(/[\w.+@*-]+)+/?")


def prose(text):
    """Number and text of each line outside of fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def slug(heading):
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(text):
    found, times = set(), {}
    for _, line in prose(text):
        match = HEADING.match(line)
        if match:
            name = slug(match.group(1))
            count = times.get(name, 0)
            times[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def long_cells(text):
    """Number of each line with a cell above the limit, and the cell."""
    for number, line in prose(text):
        if not line.lstrip().startswith("|"):
            continue
        for cell in re.split(r"(?<!\\)\|", line):
            if len(cell.strip()) > CELL_MAX:
                yield number, cell.strip()


def links(text):
    """Number of each line with a link that leads into the repository, and its target."""
    for number, line in prose(text):
        # A link in code is none; a link's text may be code.
        for target in LINK.findall(CODE.sub(lambda code: "" if "](" in code.group() else "x", line)):
            if not re.match(r"[a-z+]+:", target):
                yield number, target


def paths(text, folders):
    """Number of each line with a path in code whose first part is one of the folders, and the path."""
    for number, line in prose(text):
        for code in CODE.findall(line):
            if PATH.fullmatch(code) and code.split("/")[0] in folders:
                yield number, code


def broken_link(root, document, target):
    """What is wrong with a link of a document; None if nothing is."""
    name, _, anchor = target.partition("#")
    file = (root / document).parent / name if name else root / document
    if not file.exists():
        return f"the link to {target} leads nowhere"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
        return f"the link to {target} leads to no heading"
    return None


def exists(root, path):
    return any(root.glob(path.rstrip("/"))) if "*" in path else (root / path).exists()


def check_document(root, document, folders, errors):
    text = (root / document).read_text()
    if document not in OWNED_TABLES:
        for number, cell in long_cells(text):
            errors.append(f"{document}:{number}: a cell of {len(cell)} characters: {cell[:40]} ...")
    for number, target in links(text):
        problem = broken_link(root, document, target)
        if problem:
            errors.append(f"{document}:{number}: {problem}")
    for number, path in paths(text, folders):
        if not exists(root, path):
            errors.append(f"{document}:{number}: there is no {path}")


def check_length(document, text, errors):
    words = len(text.split())
    if words > WORDS_MAX:
        errors.append(f"{document}: {words} words, at most {WORDS_MAX}")
    return words


def check_folders(text, files, errors):
    """`text` names the folders that hold the files."""
    named = {code for _, line in prose(text) for code in CODE.findall(line)}
    wanted = set()
    for file in files:
        parts = file.split("/")
        wanted.update(parts[:1] if len(parts) > 1 else [])
        wanted.update(["/".join(parts[:2])] if len(parts) > 2 and parts[0] in LISTED_WHOLE else [])
    for folder in sorted(wanted - named):
        errors.append(f"docs/design.md: does not name the folder {folder}")
    return wanted


def check_versions(root, versions, errors):
    """The files name the version of project()."""
    version = re.search(r"project\(lockstep VERSION (\S+)", (root / "CMakeLists.txt").read_text()).group(1)
    for name, pattern in versions.items():
        found = re.findall(pattern, (root / name).read_text())
        if not found:
            errors.append(f"{name}: names no version")
        for other in sorted(set(found) - {version}):
            errors.append(f"{name}: names version {other}; project() in CMakeLists.txt has {version}")


def tracked():
    """The files that git tracks; none where this is no checkout."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True,
                                text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line for line in listed.split("\n") if line]


def self_test():
    """Each check can fail, and passes what is right."""
    errors = []
    assert check_length("x", "word " * (WORDS_MAX + 1), errors) and len(errors) == 1, errors
    assert check_length("x", "word " * WORDS_MAX, []) == WORDS_MAX
    table = "| a | b |\n|---|---|\n| " + "x" * 200 + " | " + "y" * 201 + " |\n"
    assert [number for number, _ in long_cells(table)] == [3]
    assert not list(long_cells("```\n" + table + "```\n"))
    text = "# The Key: `a.b`\n[x](y.md#z) `[no](n.md)` and [out](https://example.com)\n# The key: a.b\n"
    assert anchors(text) == {"the-key-ab", "the-key-ab-1"}, anchors(text)
    assert [target for _, target in links(text)] == ["y.md#z"], list(links(text))
    assert broken_link(ROOT, "README.md", "tests") is None
    assert broken_link(ROOT, "README.md", "tests/none.md") and broken_link(ROOT, "README.md", "#none")
    found = [path for _, path in paths("`tests/none.py` `a/b` `tests/x y` `tests/*.py`", {"tests"})]
    assert found == ["tests/none.py", "tests/*.py"], found
    assert not exists(ROOT, found[0]) and exists(ROOT, found[1])
    errors = []
    check_folders("```\n```\n`agent` and `agent/comm`", ["agent/comm/a.h", "agent/node/b.h", "docs/c.md"], errors)
    assert len(errors) == 2, errors
    errors = []
    check_versions(ROOT, {"CMakeLists.txt": r"cmake_minimum_required\(VERSION (\S+)\)"}, errors)
    check_versions(ROOT, {"LICENSE": "no such version"}, errors)
    assert len(errors) == 2, errors


def main():
    self_test()
    errors = []
    files = tracked()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    if files:
        folders = check_folders((ROOT / "docs/design.md").read_text(), files, errors)
        folders = {folder for folder in folders if "/" not in folder}
    else:
        print("no checkout of git: folders are not compared")
    documents = [*TOP_DOCUMENTS, *FOLDER_DOCUMENTS,
                 *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md")))]
    for document in documents:
        if (ROOT / document).exists():
            check_document(ROOT, document, folders, errors)
        else:
            errors.append(f"{document}: missing")
    check_versions(ROOT, VERSIONS, errors)
    words = check_length("README.md", (ROOT / "README.md").read_text(), errors)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{len(documents)} documents, {words} words in README.md, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
