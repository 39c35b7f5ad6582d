#!/usr/bin/env python3
"""Reads the tensors of a checkpoint of format 1 or 2 (docs/formats.md), whichever ranks wrote it.

  bench/train/stored_tensors.py CHECKPOINT     CHECKPOINT: a folder with a manifest.json

As a program, prints name, shape and SHA-256 of each logical tensor, so that `diff` compares two checkpoints.
"""
import collections
import hashlib
import json
import pathlib
import re
import struct
import sys

Tensor = collections.namedtuple("Tensor", "shape data")  # data: fp32, little-endian, row by row
SLICE = re.compile(r"(.+)\[(\d+):(\d+)(?:,(\d+):(\d+))?\]")
FLOAT_BYTES = 4


def read_safetensors(path):
    """Returns the F32 tensors of a file by name. Source of the format: github.com/huggingface/safetensors."""
    content = memoryview(pathlib.Path(path).read_bytes())
    data_begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(bytes(content[8:data_begin]))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: expected F32 tensors, {name} is {entry['dtype']}")
        begin, end = entry["data_offsets"]
        tensors[name] = Tensor(tuple(entry["shape"]), content[data_begin + begin:data_begin + end])
    return tensors


def place_of(name, shape):
    """Returns the logical tensor's name and the (first, last + 1) of this part in each dim."""
    found = SLICE.fullmatch(name)
    if not found:
        return name, tuple((0, size) for size in shape)
    numbers = [int(number) for number in found.groups()[1:] if number is not None]
    return found[1], tuple(zip(numbers[::2], numbers[1::2]))


def assemble(name, parts):
    """Joins the parts of a tensor; ValueError if they do not cover it exactly once."""
    shape = tuple(max(place[dim][1] for place, _ in parts) for dim in range(len(parts[0][0])))
    columns = shape[1] if len(shape) == 2 else 1
    whole = bytearray(shape[0] * columns * FLOAT_BYTES)
    covered = bytearray(shape[0] * columns)
    for place, data in parts:
        (first_row, end_row), (first_column, end_column) = (*place, (0, 1))[:2]
        width = end_column - first_column
        for row in range(end_row - first_row):
            at = (first_row + row) * columns + first_column
            whole[at * FLOAT_BYTES:(at + width) * FLOAT_BYTES] = \
                data[row * width * FLOAT_BYTES:(row + 1) * width * FLOAT_BYTES]
            if any(covered[at:at + width]):
                raise ValueError(f"two parts of {name} have element {at}")
            covered[at:at + width] = b"\1" * width
    if not all(covered):
        raise ValueError(f"the parts of {name} lack element {covered.index(0)}")
    return Tensor(shape, bytes(whole))


def read_checkpoint(folder):
    """Returns all logical tensors of a checkpoint by name: parameters and optimizer states."""
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    parts = {}
    for file in manifest["files"]:
        for name, tensor in read_safetensors(folder / file["name"]).items():
            whole, place = place_of(name, tensor.shape)
            if tuple(end - begin for begin, end in place) != tensor.shape:
                raise ValueError(f"{folder / file['name']}: {name} has the shape {tensor.shape}")
            parts.setdefault(whole, []).append((place, tensor.data))
    return {name: assemble(name, some) for name, some in parts.items()}


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for name, tensor in sorted(read_checkpoint(sys.argv[1]).items()):
        print(name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
