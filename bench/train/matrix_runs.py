"""Jobs of a matrix and how they are compared: sharding_matrix.py and mesh_matrix.py.

Jobs run on this machine with `lockstep run`, in fp32 with one thread per process, clipping and an epsilon of
1e-5. A check raises Wrong if a comparison fails. The part of attention biases for keys is left out where a
difference is allowed: its gradient is only rounding errors.
"""
import array
import collections
import json
import math
import operator
import pathlib
import random
import shutil

import local_job
import rank_kills
import same_bits
import stored_tensors
import table_files

CLIP = 0.3
LEARNING_RATE = 2e-3  # a larger one amplifies rounding errors beyond the bounds
FROM_ONE = 1e-5
INPUTS, OUTPUTS = 20, 5  # columns of the table that an mlp trains on
ATTEMPTS = 8
KEY_BIAS = "attn.c_attn.bias"

# A way to train. name: of its folder; batch, parallelism: fields of the spec; clip: the norm to which gradients are
# clipped, 0: none.
Setup = collections.namedtuple("Setup", "name model batch nodes per_node parallelism clip rate",
                               defaults=(CLIP, LEARNING_RATE))


class Wrong(Exception):
    """A comparison that failed."""


class Runs:
    """Jobs of `steps` steps in a folder. Each different one is run once, and found again later."""

    def __init__(self, options, folder, steps):
        self.program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        self.limit = options.limit
        self.steps = steps
        self.folder = folder
        self.data = folder / "data"
        self.scratch = folder / "scratch"  # for what is offloaded
        if not self.data.exists():
            self.data.mkdir(parents=True)
            same_bits.text_file(self.data)
            table_files.write(self.data, INPUTS, OUTPUTS)
        self.scratch.mkdir(exist_ok=True)

    def train(self, setup, steps, is_last_free):
        """The spec of the training; is_last_free: the last step has a learning rate of zero."""
        if setup.model.get("family") == "mlp":
            data = {"features": str(self.data / "features.npy"), "targets": str(self.data / "targets.npy")}
            sample = {}
        else:
            data = {"path": str(self.data / "text.txt"), "tokenizer": "bytes"}
            sample = {"sample": {"tokens": 60, "prompt": "the"}}
        return sample | {
            "model": setup.model, "data": data | {"validationFraction": 0.05}, "steps": steps, "batch": setup.batch,
            "optimizer": {"learningRate": setup.rate, "warmupSteps": 5, "epsilon": 1e-5, "clipNorm": setup.clip,
                          "schedule": "linear" if is_last_free else "constant"},
            "validation": {"everySteps": self.steps // 2}, "bucketBytes": 32 << 10}

    def run(self, setup, name="", steps=0, start=None, is_last_free=False, kills=None):
        """Returns the output of a job, which continues the checkpoints of the job `start`."""
        name = name or setup.name
        output = self.folder / "runs" / name.replace(" ", "-").replace(",", "")
        finished = output / "finished"
        if finished.exists():
            return output
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        if start:
            shutil.copytree(start / "checkpoints", output / "checkpoints")
        spec = local_job.job(self.train(setup, steps or self.steps, is_last_free), setup.nodes, setup.per_node,
                             setup.parallelism, {"everySteps": self.steps // 2, "keep": 100},
                             restarts=100 if kills else 0)
        local_job.run(self.program, spec, output, self.limit, kills)
        if left := list(self.scratch.iterdir()):
            raise Wrong(f"{name}: the job left {left[0].name} in its offloadPath")
        finished.write_text("")
        return output


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


def losses(output, steps):
    """Returns all losses of a job: of each step, and of the validations after each half and at the end."""
    path = output / "checkpoints/metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(name, line["step"]): line[name] for line in lines for name in ("loss", "validationLoss") if name in line}
    wanted = steps + 2 + (steps % 2 > 0)
    if len(found) != wanted:
        raise Wrong(f"{path}: {len(found)} losses, expected {wanted}")
    return found


def expect_close(what, runs, output, wanted, bound):
    """Returns the largest difference of a loss, and of a parameter with its name."""
    mine, theirs = (losses(run, runs.steps) for run in (output, wanted))
    loss = max(abs(mine[key] - value) / abs(value) for key, value in theirs.items())
    mine, theirs = (parameters(checkpoint(run, runs.steps)) for run in (output, wanted))
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


def expect_same_runs(what, mine, theirs):
    expect_same(what, same_bits.contents(mine), same_bits.contents(theirs))


def run_twice(runs, setup):
    """Runs a job twice, with the same bits and enough clipped steps. Returns its output."""
    output = runs.run(setup)
    again = runs.run(setup, f"{setup.name}-again")
    expect_same_runs("the same job twice", output, again)
    clipped = sum(numbers["gradientNorm"] > setup.clip for numbers in local_job.steps(output))
    if setup.clip and clipped < runs.steps // 4:
        raise Wrong(f"only {clipped} steps were clipped, the matrix needs a smaller clipNorm")
    shutil.rmtree(again)
    return output


def check_resumed(what, runs, first, then, throughout):
    """`first` trains half of the steps and `then` the rest: the same bits as `throughout`."""
    half = runs.run(first, f"{first.name}-half", steps=runs.steps // 2)
    output = runs.run(then, f"{first.name}-then-{then.name}", start=half)
    expect_same_runs(what, output, runs.run(throughout))
    shutil.rmtree(output)
    return {}


def check_moved(runs, first, then):
    """`then` loads the checkpoint of `first` and does one step with a learning rate of zero: the same parameters."""
    saver = runs.run(first)
    output = runs.run(then, f"{first.name}-to-{then.name}", steps=runs.steps + 1, start=saver, is_last_free=True)
    rate = local_job.steps(output)[-1]["learningRate"]
    if rate != 0:
        raise Wrong(f"the step after the checkpoint had the learning rate {rate}, expected 0")
    saved, loaded = (parameters(checkpoint(run, step))
                     for run, step in ((saver, runs.steps), (output, runs.steps + 1)))
    expect_same("parameters", *({name: (tensor.shape, bytes(tensor.data)) for name, tensor in tensors.items()}
                                for tensors in (loaded, saved)))
    shutil.rmtree(output)
    return {}


def draw_kills(draw, ranks, phase, steps):
    """Returns one kill in training after the first checkpoint, and one of another rank in a phase."""
    first, second = draw.sample(range(ranks), 2)
    if phase == "finishing":
        first, second = ranks - 1, 0  # rank 0 samples, so this phase takes it longer
    later = steps // 2 + 1 + draw.randrange(steps // 4)
    return rank_kills.Kills([rank_kills.Kill(first, "training", later),
                             rank_kills.Kill(second, phase, later if phase == "training" else 0)])


def check_killed(runs, setup, phase, seed):
    """Tries more than once, because a phase can be over before it is seen."""
    wanted = runs.run(setup)
    draw = random.Random(seed)
    for _ in range(ATTEMPTS):
        kills = draw_kills(draw, setup.nodes * setup.per_node, phase, runs.steps)
        output = runs.run(setup, f"{setup.name}-killed-{phase}", kills=kills)
        expect_same_runs("the job without kills", output, wanted)
        shutil.rmtree(output)
        if not kills.left:
            return {}
    raise Wrong(f"no rank was seen {phase} in {ATTEMPTS} jobs")
