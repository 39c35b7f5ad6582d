#!/usr/bin/env python3
"""Checks that every way of sharding trains like the single process, and loads every other one's checkpoints.

  bench/train/sharding_matrix.py --build build --results FOLDER             # everything
  bench/train/sharding_matrix.py --build build --sample                     # a few cells of each kind
  bench/train/sharding_matrix.py --build build --results FOLDER --families mlp --ranks 2,4 --modes 'none; host'

Jobs run on this machine with `lockstep run`, in fp32 with one thread per process, 40 steps, accumulated
micro-batches, clipping and an epsilon of 1e-5. The cells:
- training: a family, a mode of sharding_modes.py, and a number of ranks. Losses, and each parameter by its
  relative L2 norm, differ by at most 1e-5 from the single process and by at most 1e-6 from `none` with as many
  ranks. With 2 ranks there is also a cell with one micro-batch, whose bits are those of `none`. Every job runs
  twice, with the same bits. The part of attention biases for keys is left out: its gradient is only rounding
  errors.
- resumed: 2 ranks and one micro-batch; one mode trains half of the steps, another one the rest. Parameters and
  the optimizer's states are the same bits as those of `none` throughout.
- moved: 4 ranks save; another number of ranks loads in another mode, and does one step with a learning rate of
  zero. All parameters have the same bits as in the checkpoint.
- killed: 4 ranks; a rank is killed (SIGKILL) after the first checkpoint, and in the next round another one in the named
  phase. The job ends with the same bits as without kills.

Finished cells are lines of FOLDER/<SHA-256 of the worker>/cells.jsonl, and the next start skips those that
passed. Without FOLDER nothing is kept. Prints a line per cell; the exit code is 1 if a cell failed.
"""
import argparse
import array
import hashlib
import json
import math
import operator
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import time

import local_job
import rank_kills
import same_bits
import sharding_cells
import sharding_modes
import stored_tensors
from sharding_cells import name_of

STEPS = 40
GLOBAL = 16
CLIP = 0.3
FROM_ONE, FROM_NONE = 1e-5, 1e-6
TEXT_MODEL = {"layers": 2, "width": 48, "heads": 4, "context": 32}
MODELS = {
    "gpt": TEXT_MODEL,
    "llama": TEXT_MODEL | {"family": "llama", "kvHeads": 2, "hiddenWidth": 128},
    "mlp": {"family": "mlp", "inputs": 20, "hidden": [72, 40], "outputs": 5, "activation": "gelu"},
}
TABLE_ROWS = 600
ATTEMPTS = 8
KEY_BIAS = "attn.c_attn.bias"


class Wrong(Exception):
    """A comparison that failed."""


def write_table(folder):
    """Writes features and classes that are worth learning, as .npy files."""
    draw = random.Random(3)
    inputs, classes = MODELS["mlp"]["inputs"], MODELS["mlp"]["outputs"]
    rows, targets = array.array("f"), array.array("i")
    for _ in range(TABLE_ROWS):
        row = [draw.gauss(0, 1) for _ in range(inputs)]
        rows.extend(row)
        targets.append(int(abs(sum(row[:4]))) % classes)
    for name, kind, values, shape in (("features", "<f4", rows, f"({TABLE_ROWS}, {inputs})"),
                                      ("targets", "<i4", targets, f"({TABLE_ROWS},)")):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        (folder / f"{name}.npy").write_bytes(
            b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


class Runs:
    """Jobs in a folder. Each different one is run once, and found again later."""

    def __init__(self, options, folder):
        self.program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        self.limit = options.limit
        self.folder = folder
        self.data = folder / "data"
        if not self.data.exists():
            self.data.mkdir(parents=True)
            same_bits.text_file(self.data)
            write_table(self.data)

    def train(self, family, ranks, whole, steps, is_last_free):
        """The spec of the training; is_last_free: the last step has a learning rate of zero."""
        if family == "mlp":
            data = {"features": str(self.data / "features.npy"), "targets": str(self.data / "targets.npy")}
        else:
            data = {"path": str(self.data / "text.txt"), "tokenizer": "bytes"}
        per_rank = GLOBAL // ranks
        sample = {} if family == "mlp" else {"sample": {"tokens": 60, "prompt": "the"}}
        return sample | {
            "model": MODELS[family], "data": data | {"validationFraction": 0.05}, "steps": steps,
            "batch": {"global": GLOBAL, "micro": per_rank if whole else max(1, per_rank // 4)},
            # A larger rate amplifies rounding errors beyond the bounds.
            "optimizer": {"learningRate": 2e-3, "warmupSteps": 5, "epsilon": 1e-5, "clipNorm": CLIP,
                          "schedule": "linear" if is_last_free else "constant"},
            "validation": {"everySteps": STEPS // 2}, "bucketBytes": 32 << 10}

    def run(self, name, family, mode, ranks, whole=False, steps=STEPS, start=None, is_last_free=False, kills=None):
        """Returns the output of a job, which continues the checkpoints of the job `start`."""
        output = self.folder / "runs" / name.replace(" ", "-").replace(",", "")
        finished = output / "finished"
        if finished.exists():
            return output
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        if start:
            shutil.copytree(start / "checkpoints", output / "checkpoints")
        nodes, per_node = sharding_modes.shape(mode, ranks)
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        spec = local_job.job(self.train(family, ranks, whole, steps, is_last_free), nodes, per_node,
                             sharding_modes.parallelism(mode, scratch),
                             {"everySteps": STEPS // 2, "keep": 100}, restarts=100 if kills else 0)
        local_job.run(self.program, spec, output, self.limit, kills)
        if left := list(scratch.iterdir()):
            raise Wrong(f"{name}: the job left {left[0].name} in its offloadPath")
        finished.write_text("")
        return output

    def of(self, family, mode, ranks, whole=False, again=""):
        batches = "whole" if whole else "accumulated"
        return self.run(f"{family}-{mode}-{ranks}-{batches}{again}", family, mode, ranks, whole)


def floats(name, tensor):
    """Returns the values of a tensor, without an attention bias's part for keys."""
    values = array.array("f", bytes(tensor.data))
    if name.endswith(KEY_BIAS):
        third = len(values) // 3
        return values[:third] + values[2 * third:]
    return values


def relative_norm(values, wanted):
    """Returns the norm of the difference, relative to the norm of what is wanted."""
    if len(values) != len(wanted):
        raise Wrong(f"{len(values)} values, expected {len(wanted)}")
    differences = list(map(operator.sub, values, wanted))
    difference = sum(map(operator.mul, differences, differences))
    norm = sum(map(operator.mul, wanted, wanted))
    if difference == 0:
        return 0.0
    return math.sqrt(difference / norm) if norm > 0 else math.inf


def checkpoint(output, step):
    return output / f"checkpoints/step-{step:08}"


def parameters(folder):
    """Returns the parameters of a checkpoint by name: the tensors in its model files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    names = set()
    for file in manifest["files"]:
        if file["name"].startswith("model"):
            tensors = stored_tensors.read_safetensors(folder / file["name"])
            names |= {stored_tensors.place_of(name, tensor.shape)[0] for name, tensor in tensors.items()}
    if not names:
        raise Wrong(f"{folder} has no parameters")
    return {name: tensor for name, tensor in stored_tensors.read_checkpoint(folder).items() if name in names}


def losses(output):
    """Returns all losses of a job: of each step, and of each validation."""
    path = output / "checkpoints/metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(name, line["step"]): line[name] for line in lines for name in ("loss", "validationLoss") if name in line}
    wanted = STEPS + 2
    if len(found) != wanted:
        raise Wrong(f"{path}: {len(found)} losses, expected {wanted}")
    return found


def expect_close(what, output, wanted, bound):
    """Returns the largest difference of a loss, and of a parameter with its name."""
    mine, theirs = losses(output), losses(wanted)
    loss = max(abs(mine[key] - value) / abs(value) for key, value in theirs.items())
    mine, theirs = (parameters(checkpoint(run, STEPS)) for run in (output, wanted))
    if mine.keys() != theirs.keys():
        raise Wrong(f"{what}: different parameters: {sorted(mine.keys() ^ theirs.keys())[:3]}")
    worst, tensor = max((relative_norm(floats(name, mine[name]), floats(name, theirs[name])), name) for name in mine)
    if not (loss <= bound and worst <= bound):
        raise Wrong(f"{what}: losses differ by {loss:.1e}, {tensor} by {worst:.1e}, expected at most {bound:.0e}")
    return {"loss": loss, "parameters": worst, "tensor": tensor}


def expect_same(what, mine, theirs):
    """Compares two dictionaries exactly."""
    wrong = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    if wrong or not theirs:
        raise Wrong(f"{what}: {len(wrong)} of {len(theirs)} differ: {', '.join(map(str, wrong[:3]))}")


def clipped_steps(output):
    return sum(numbers["gradientNorm"] > CLIP for numbers in local_job.steps(output))


def check_training(runs, cell):
    output = runs.of(cell.family, cell.mode, cell.ranks, cell.whole)
    again = runs.of(cell.family, cell.mode, cell.ranks, cell.whole, "-again")
    expect_same("the same job twice", same_bits.contents(output), same_bits.contents(again))
    if clipped_steps(output) < STEPS // 4:
        raise Wrong(f"only {clipped_steps(output)} steps were clipped, the matrix needs a smaller clipNorm")
    shutil.rmtree(again)
    single = runs.of(cell.family, "none", 1)
    found = {"from one process": expect_close("one process", output, single, FROM_ONE)}
    replicated = runs.of(cell.family, "none", cell.ranks, cell.whole)
    found["from none"] = expect_close("none", output, replicated, FROM_NONE)
    if cell.whole:
        expect_same("none", same_bits.contents(output), same_bits.contents(replicated))
    return found


def check_resumed(runs, cell):
    half = runs.run(f"{cell.family}-{cell.mode}-half", cell.family, cell.mode, 2, True, STEPS // 2)
    output = runs.run(f"{cell.family}-{cell.mode}-then-{cell.then}", cell.family, cell.then, 2, True, start=half)
    wanted = runs.of(cell.family, "none", 2, True)
    expect_same("none throughout", same_bits.contents(output), same_bits.contents(wanted))
    shutil.rmtree(output)
    return {}


def check_moved(runs, cell):
    first = runs.of(cell.family, cell.mode, 4)
    output = runs.run(f"{cell.family}-{cell.mode}-4-to-{cell.then}-{cell.then_ranks}", cell.family, cell.then,
                      cell.then_ranks, steps=STEPS + 1, start=first, is_last_free=True)
    rate = local_job.steps(output)[-1]["learningRate"]
    if rate != 0:
        raise Wrong(f"the step after the checkpoint had the learning rate {rate}, expected 0")
    saved, loaded = (parameters(checkpoint(run, step)) for run, step in ((first, STEPS), (output, STEPS + 1)))
    expect_same("parameters", *({name: (tensor.shape, bytes(tensor.data)) for name, tensor in tensors.items()}
                                for tensors in (loaded, saved)))
    shutil.rmtree(output)
    return {}


def kills_of(cell, draw):
    """Returns one kill in training after the first checkpoint, and one of another rank in the cell's phase."""
    first, second = draw.sample(range(cell.ranks), 2)
    if cell.phase == "finishing":
        first, second = cell.ranks - 1, 0  # rank 0 samples, so this phase takes it longer
    later = STEPS // 2 + 1 + draw.randrange(STEPS // 4)
    return rank_kills.Kills([rank_kills.Kill(first, "training", later),
                             rank_kills.Kill(second, cell.phase, later if cell.phase == "training" else 0)])


def check_killed(runs, cell):
    """Tries more than once, because a phase can be over before it is seen."""
    wanted = runs.of(cell.family, cell.mode, cell.ranks)
    draw = random.Random(name_of(cell))
    for _ in range(ATTEMPTS):
        kills = kills_of(cell, draw)
        output = runs.run(f"{cell.family}-{cell.mode}-killed-{cell.phase}", cell.family, cell.mode, cell.ranks,
                          kills=kills)
        expect_same("the job without kills", same_bits.contents(output), same_bits.contents(wanted))
        shutil.rmtree(output)
        if not kills.todo:
            return {}
    raise Wrong(f"no rank was seen {cell.phase} in {ATTEMPTS} jobs")


CHECKS = {"training": check_training, "resumed": check_resumed, "moved": check_moved, "killed": check_killed}


def passed_before(path):
    """Returns the names of cells that passed; a line that was cut off counts as none."""
    names = set()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if result["passed"]:
            names.add(result["cell"])
    return names


def summary(found):
    return ", ".join(f"{what}: losses {value['loss']:.1e}, {value['tensor']} {value['parameters']:.1e}"
                     for what, value in found.items()) or "same bits"


def run_cell(runs, cell, results):
    """Runs a cell and stores its result. Returns whether it passed."""
    begin = time.monotonic()
    found, problem = {}, None
    try:
        found = CHECKS[cell.kind](runs, cell)
    except (Wrong, local_job.JobFailed) as error:
        problem = str(error)
    result = {"cell": name_of(cell), "passed": problem is None, "seconds": round(time.monotonic() - begin, 2)}
    result |= {"differences": found} if problem is None else {"problem": problem}
    with open(results, "a") as file:
        file.write("\n" * (file.tell() > 0 and not results.read_bytes().endswith(b"\n")) + json.dumps(result) + "\n")
    text = summary(found) if problem is None else "FAILED: " + problem.replace("\n", " ")[:600]
    print(f"{name_of(cell)}: {text} ({result['seconds']:.1f} s)", flush=True)
    return problem is None


def split(text, kind=str):
    return [kind(item.strip()) for item in text.split(",") if item.strip()]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--results", type=pathlib.Path, help="folder for finished cells and the runs they need")
    parser.add_argument("--kinds", type=split, default=list(CHECKS))
    parser.add_argument("--families", type=split, default=list(sharding_cells.FAMILIES))
    parser.add_argument("--ranks", type=lambda text: split(text, int), default=list(sharding_cells.RANKS))
    parser.add_argument("--modes", type=sharding_modes.chosen, default=list(sharding_modes.MODES),
                        help="separated by semicolons: " + "; ".join(sharding_modes.MODES))
    parser.add_argument("--sample", type=int, nargs="?", const=3, default=0, help="only so many cells of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    options = parser.parse_args()
    for given, known in ((options.kinds, CHECKS), (options.families, sharding_cells.FAMILIES), (options.ranks, sharding_cells.RANKS)):
        if unknown := [item for item in given if item not in known]:
            parser.error(f"{unknown[0]}: expected one of {', '.join(map(str, known))}")
    return options


def run_all(options, todo, folder):
    """Runs the cells that have not passed yet. Returns the exit code."""
    worker = pathlib.Path(options.build) / "bin/lockstep-worker"
    folder = folder / hashlib.sha256(worker.read_bytes()).hexdigest()[:16]
    runs = Runs(options, folder)
    results = folder / "cells.jsonl"
    before = passed_before(results)
    failed = [cell for cell in todo if name_of(cell) not in before and not run_cell(runs, cell, results)]
    skipped = sum(name_of(cell) in before for cell in todo)
    kept = f"; results: {results}" if options.results else ""
    print(f"{len(todo) - len(failed)} of {len(todo)} cells passed, {skipped} of them before{kept}")
    return 1 if failed or not todo else 0


def main():
    options = parse()
    todo = sharding_cells.cells(options)
    if options.list:
        print("\n".join(map(name_of, todo)))
        return 0
    if options.results:
        return run_all(options, todo, options.results.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return run_all(options, todo, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
