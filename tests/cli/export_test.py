#!/usr/bin/env python3
"""Exports a stored checkpoint in every form, and reads the files with nothing of Lockstep's.

    export_test.py BIN_FOLDER
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "tests/golden/checkpoint/step-00000007"
# Hugging Face's Conv1D stores [in, out], a checkpoint [out, in].
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
INDEX = "model.safetensors.index.json"


def read_file(path):
    """The tensors of a safetensors file: name to dtype, shape and the bits of each element."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    assert header.pop("__metadata__") == {"format": "pt"}, path
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, last = entry["data_offsets"]
        assert begin == end, (path, name)
        end = last
        width, code = {"F32": (4, "I"), "BF16": (2, "H")}[entry["dtype"]]
        bits = struct.unpack(f"<{(end - begin) // width}{code}", body[begin:end])
        tensors[name] = (entry["dtype"], entry["shape"], bits)
    assert end == len(body), path
    return tensors


def read_folder(folder):
    """The tensors of all files that the index names, which are all files there."""
    index = json.loads((folder / INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, INDEX]), folder
    assert files == [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))], files
    tensors = {}
    for file in files:
        of_file = read_file(folder / file)
        assert of_file and not tensors.keys() & of_file.keys(), file
        assert all(index["weight_map"][name] == file for name in of_file), file
        tensors.update(of_file)
    assert index["weight_map"].keys() == tensors.keys(), folder
    size = sum(len(bits) * (4 if dtype == "F32" else 2) for dtype, _, bits in tensors.values())
    assert index["metadata"] == {"total_size": size}, index["metadata"]
    return tensors


def bf16(bits):
    """The upper half of a float's bits, rounded to nearest even."""
    low, high = bits & 0xffff, bits >> 16
    return high + (low > 0x8000 or (low == 0x8000 and high & 1 == 1))


def expected(dtype):
    """What Hugging Face's GPT2LMHeadModel holds for the checkpoint."""
    tensors = {}
    for name, (_, shape, bits) in read_file(CHECKPOINT / "model.safetensors").items():
        if name.endswith(CONV1D):
            rows, columns = shape
            shape, bits = [columns, rows], [bits[r * columns + c] for c in range(columns) for r in range(rows)]
        tensors[name] = (dtype, shape, tuple(bf16(each) if dtype == "BF16" else each for each in bits))
    return tensors


def main(bin_folder):
    lockstep = str(pathlib.Path(bin_folder) / "lockstep")
    cases = 0
    with tempfile.TemporaryDirectory() as place:
        for precision, dtype in (("fp32", "F32"), ("bf16", "BF16")):
            for limit in ("1B", "1kB", "2kB", "4KiB", "1GB"):
                to = pathlib.Path(place) / f"{precision}-{limit}"
                subprocess.run([lockstep, "export", str(CHECKPOINT), str(to), "--precision", precision,
                                "--max-file-size", limit], check=True, stdout=subprocess.DEVNULL)
                tensors = read_file(to) if limit == "1GB" else read_folder(to)
                assert tensors == expected(dtype), to
                cases += 1
        refused = subprocess.run([lockstep, "export", str(CHECKPOINT), f"{place}/average", "--average"],
                                 capture_output=True, text=True)
        assert refused.returncode == 2 and "has no moving averages" in refused.stderr, refused
        assert len(list(pathlib.Path(place).iterdir())) == cases, "something was left behind"
    print(f"{cases} exports have the checkpoint's values")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
