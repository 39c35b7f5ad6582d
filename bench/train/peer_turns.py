"""One turn of Lockstep or of PyTorch on this machine, from the same weights and on the same tokens.

For the programs that compare the two. Every turn's first losses must be those of the first turn, whichever program
that was.
"""
import array
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile

import local_job

HERE = pathlib.Path(__file__).resolve().parent
RATE = 1e-3
PARITY = 1e-4


class Failed(Exception):
    """A program that failed, or learned something else; the text says which and why."""


def text_of(settings):
    return ", ".join(f"{name} {value}" for name, value in settings.items())


class Work:
    """What all programs train: the model, the tokens of a step, and the weights they begin with.

    `batch`: spec.train.batch. `options` has python, build, warmup, steps, and the limit of a turn in seconds.
    """

    def __init__(self, options, folder, model, batch):
        self.options, self.folder, self.model, self.batch = options, folder, model, batch
        self.tokens = folder / "tokens.u16"
        self.weights = folder / "weights.safetensors"
        self.losses = None
        draw = random.Random(5)
        common = draw.sample(range(self.model["vocabulary"]), 64)  # so that there is something to learn
        count = self.tokens_per_step() + 1
        self.tokens.write_bytes(array.array("H", (draw.choice(common) for _ in range(count))).tobytes())

    def tokens_per_step(self):
        return self.batch["global"] * self.model["context"]

    def check_losses(self, who, losses):
        """Expects the losses of the first program: a step has all the tokens, in whatever order."""
        losses = losses[:self.options.warmup + 1]
        if self.losses is None:
            self.losses = losses
        if len(losses) != len(self.losses):
            raise Failed(f"{who}: {len(losses)} losses, expected {len(self.losses)}")
        differences = [abs(a - b) / abs(b) for a, b in zip(losses, self.losses)]
        if wrong := [one for one in differences if not one <= PARITY]:  # a NaN is never close
            raise Failed(f"{who}: losses differ by {max(wrong):.1e}, expected at most {PARITY:.0e}: "
                         f"{losses[:3]} and {self.losses[:3]}")


def run_python(work, who, script, flags, switches=()):
    """Runs one of PyTorch's scripts in this folder. Returns the JSON that it printed last; kills what it started."""
    if not work.weights.exists():
        flags = flags | {"weights-out": work.weights}
    command = [work.options.python, str(HERE / script), *switches]
    command += [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=work.options.limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"{who}: did not end within {work.options.limit:.0f} s") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if process.returncode != 0:
        raise Failed(f"{who}: exit code {process.returncode}\n{errors[-1500:]}")
    result = json.loads(output.strip().splitlines()[-1])
    work.check_losses(who, result["losses"])
    return result


def run_ours(work, fields, nodes, per_node):
    """Returns the tokens/s of Lockstep, and the seconds of each part of a step on rank 0: name -> median."""
    options = work.options
    model = work.model | {"weights": {"path": str(work.weights)}}
    train = {"model": model, "data": {"path": str(work.tokens), "tokenizer": "u16"},
             "steps": options.warmup + options.steps, "batch": work.batch,
             "recompute": "none",  # as PyTorch, whatever the schedule
             "optimizer": {"learningRate": RATE, "schedule": "constant"}}
    who = f"Lockstep, {text_of(fields) or 'replicated'}"
    with tempfile.TemporaryDirectory(dir=work.folder) as folder:
        output = pathlib.Path(folder) / "job"
        try:
            local_job.run(pathlib.Path(options.build).resolve() / "bin/lockstep",
                          local_job.job(train, nodes, per_node, fields), output, options.limit)
        except local_job.JobFailed as error:
            raise Failed(f"{who}: {error}") from None
        numbers = local_job.steps(output)
    work.check_losses(who, [step["loss"] for step in numbers])
    timed = [step["seconds"] for step in numbers[options.warmup:]]
    parts = {name: statistics.median(seconds[name] for seconds in timed) for name in timed[0]}
    return work.tokens_per_step() / parts["total"], parts


def spread(values, digits=0):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def ratio(mine, theirs):
    ratios = [a / b for a, b in zip(mine, theirs)]
    return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
