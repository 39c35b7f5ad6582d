#!/usr/bin/env python3
"""Writes the files that follow the list of fields: both definitions and the tables of docs/trainingjob.md.

    write_fields.py < OUTPUT_OF_print_fields        in the root of the checkout

A new field's row goes below the row of the field before it in the list. The row of a field that is no longer in the
list is removed. Names each file that changed. tools/fields is the command for this.
"""
import json
import pathlib
import sys

import yaml

DEFINITION = "charts/lockstep/files/{}/trainingjobs.lockstep.dev.yaml"
DOCUMENT = "docs/trainingjob.md"
SCHEMA = "openAPIV3Schema:\n"  # the rest of a definition is its schema
COLUMNS = 100


def definition(text, schema):
    """The definition with this schema; what comes before it stays as it is."""
    before, found, old = text.partition(SCHEMA)
    assert found, f"no {SCHEMA.strip()}"
    indent = " " * (len(old) - len(old.lstrip(" ")))
    lines = yaml.safe_dump(schema, width=COLUMNS - len(indent)).splitlines()
    return before + SCHEMA + "".join(f"{indent}{line}\n" for line in lines)


def path_of(line):
    return line.split("`")[1] if line.startswith("| `") else None


def document(text, fields):
    """The document with the fields' rows."""
    wanted = {field["path"]: field["row"] for field in fields}
    rows = {}
    lines = []
    for line in text.splitlines():
        path = path_of(line)
        if path is None or path in wanted:
            lines.append(line if path is None else wanted[path])
            rows[path] = True
    before = None
    for field in fields:
        if field["path"] not in rows:
            after = next(at for at, line in enumerate(lines) if path_of(line) == before)
            lines.insert(after + 1, field["row"])
        before = field["path"]
    return "".join(line + "\n" for line in lines)


def self_test():
    old = "# x\n\n| field |\n|---|\n| `a` | 1 |\n| `gone` | 2 |\n\nend\n"
    fields = [{"path": "a", "row": "| `a` | 3 |"}, {"path": "b", "row": "| `b` | 4 |"}]
    assert document(old, fields) == "# x\n\n| field |\n|---|\n| `a` | 3 |\n| `b` | 4 |\n\nend\n"
    made = definition("spec:\n  openAPIV3Schema:\n    old: 1\n", {"type": "object"})
    assert made == "spec:\n  openAPIV3Schema:\n    type: object\n", made


def main():
    self_test()
    printed = json.load(sys.stdin)
    files = {
        DEFINITION.format("crds"): lambda text: definition(text, printed["schema"]),
        DEFINITION.format("crds-cel"): lambda text: definition(text, printed["schemaWithRules"]),
        DOCUMENT: lambda text: document(text, printed["rows"]),
    }
    for name, made_from in files.items():
        file = pathlib.Path(name)
        old = file.read_text()
        new = made_from(old)
        if new != old:
            file.write_text(new)
            print(f"{name}: written")


if __name__ == "__main__":
    main()
