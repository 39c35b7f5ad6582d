#!/usr/bin/env python3
"""No two files define a type of the same qualified name, which could break the one-definition rule.

Reads the C++ and CUDA files that git tracks; types in unnamed namespaces, and types within functions and
other types, are left out. Files of which a program links only one (twins) are listed below.
`tools/check --odr` finds the same at link time, and what types of the same name differ in.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folders that stand in for others: a program has one of the two.
TWINS = ("tests/support/emulated_cuda/stand_in/", "tests/support/emulated_cuda/emulated_headers/")

DEFINITION = re.compile(r"(?:struct|class|enum class|enum|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?"
                        r"\s*(?::[^:;{][^;{]*)?\{$")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:]*)\s*\{$")
NOISE = [(re.compile(r"//[^\n]*"), ""), (re.compile(r'"(?:\\.|[^"\\\n])*"'), '""'),
         (re.compile(r"'(?:\\.|[^'\\\n])'"), "' '"), (re.compile(r"^\s*#[^\n]*(?:\\\n[^\n]*)*", re.M), "")]


def definitions(text):
    """The qualified names of the types that a file defines in named namespaces."""
    for pattern, replacement in NOISE:
        text = pattern.sub(replacement, text)
    scopes, begin = [], 0  # of each open brace: the namespace's name, or None
    for match in re.finditer(r"[{};]", text):
        statement, begin = text[begin:match.end()].strip(), match.end()
        if match.group() == "}" and scopes:
            scopes.pop()
        if match.group() != "{":
            continue
        namespace = NAMESPACE.match(statement)
        definition = None if statement.startswith("template") else DEFINITION.match(statement)
        if definition and all(scopes):
            yield "::".join([*scopes, definition.group(1)])
        scopes.append(namespace.group(1) if namespace else None)


def self_test():
    source = ('namespace a::b {\nstruct X {  // {\n  struct Inner {};\n};\nnamespace {\nclass Y final : public X {};\n}\n'
              'template <class T>\nstruct Z {};\nenum class E : int { kA };\nvoid f() { struct Local {}; }\n}\n')
    assert list(definitions(source)) == ["a::b::X", "a::b::E"], list(definitions(source))


def main():
    self_test()
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.h",
                             "*.cc", "*.cu", "*.cuh"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout.split()
    places = collections.defaultdict(list)
    for path in listed:
        if (ROOT / path).exists() and not path.startswith(TWINS):
            for name in definitions((ROOT / path).read_text()):
                places[name].append(path)
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    for name, paths in twice.items():
        print(f"{name} is defined in {' and '.join(paths)}: rename one of them")
    print(f"{len(listed)} files, {len(places)} types, {len(twice)} defined more than once")
    return 1 if twice or len(places) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
