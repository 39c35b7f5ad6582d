#!/usr/bin/env python3
"""Compares how well an MLP predicts that Lockstep trained with one that PyTorch trained on the same table.

  sudo apt-get install python3-torch
  bench/train/compare_mlp.py --build build --seeds 11

Both train the model of a job (by default examples/mlp.yaml) on the same rows, with the job's optimizer, schedule and
batches, once for each seed of initial weights and order of rows. PyTorch evaluates both models on the rows that were held
back: by the accuracy, or for a regression by the coefficient of determination, and by the loss. Prints a Markdown table of
medians with their spread. --peer-only trains with PyTorch alone.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch
import yaml
from torch import nn

import stored_tensors

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ACTIVATIONS = {"relu": nn.ReLU, "gelu": lambda: nn.GELU(approximate="tanh"), "tanh": nn.Tanh}
# The defaults of common/api/training_job.h that the peer needs.
OPTIMIZER = {"name": "adamw", "learningRate": 3e-4, "schedule": "cosine", "warmupSteps": 0,
             "minimumLearningRate": 0, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weightDecay": 0.1,
             "clipNorm": 1.0}


class Table:
    """The rows of a job: trained on, and held back."""

    def __init__(self, folder, train):
        data, model = train["data"], train["model"]
        self.is_regression = model.get("task") == "regression"
        self.features = torch.from_numpy(numpy.load(folder / data["features"]).astype("f4"))
        targets = numpy.load(folder / data["targets"])
        if self.is_regression:
            self.targets = torch.from_numpy(targets.astype("f4").reshape(-1, model["outputs"]))
        else:
            self.targets = torch.from_numpy(targets.astype("i8"))
        self.trained = len(self.targets) - round(data["validationFraction"] * len(self.targets))

    def loss(self, outputs, targets):
        function = nn.functional.mse_loss if self.is_regression else nn.functional.cross_entropy
        return function(outputs, targets)

    def score(self, outputs, targets):
        """Accuracy in percent, or for a regression the coefficient of determination."""
        if self.is_regression:
            return 1 - (self.loss(outputs, targets) / self.loss(targets.mean(dim=0).expand_as(targets), targets)).item()
        return 100 * (outputs.argmax(dim=1) == targets).double().mean().item()


def sequential(model):
    widths = [model["inputs"], *model.get("hidden", []), model["outputs"]]
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[model.get("activation", "relu")]()]
    return nn.Sequential(*layers[:-1])


def rate(optimizer, step, steps):
    """The learning rate of a step, counted from 1, as in agent/optim/schedule.h."""
    peak, least, warmup = (optimizer[key] for key in ("learningRate", "minimumLearningRate", "warmupSteps"))
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / (steps - warmup)
    share = {"constant": 1, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}
    return least + (peak - least) * share[optimizer["schedule"]]


def batches(count, size, steps):
    """Rows of each batch; every epoch is a new order of all rows, and batches may span two."""
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < size:
            order = torch.cat([order, torch.randperm(count)])
        yield order[:size]
        order = order[size:]


def train_peer(train, table, seed):
    torch.manual_seed(seed)
    model = sequential(train["model"])
    settings = {**OPTIMIZER, **train.get("optimizer", {})}
    assert settings["name"] == "adamw", "the peer knows AdamW alone"
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": settings["weightDecay"]},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])
    steps, size = train["steps"], train["batch"]["global"]
    for step, rows in enumerate(batches(table.trained, size, steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(settings, step, steps)
        optimizer.zero_grad()
        table.loss(model(table.features[rows]), table.targets[rows]).backward()
        if settings["clipNorm"] > 0:
            nn.utils.clip_grad_norm_(model.parameters(), settings["clipNorm"])
        optimizer.step()
    return model


def as_torch(tensor):
    return torch.from_numpy(numpy.frombuffer(tensor.data, "<f4").reshape(tensor.shape).copy())


def train_ours(options, job, seed):
    train = job["spec"]["train"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for key in ("features", "targets"):
            train["data"][key] = str((options.job.parent / train["data"][key]).resolve())
        train["seed"] = train["data"]["seed"] = seed
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        done = subprocess.run([f"{options.build}/bin/lockstep", "run", folder / "job.yaml",
                               "--output", folder / "out"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lockstep run: {done.stderr[-2000:]}")
        last = max((folder / "out/checkpoints").glob("step-*"))
        model = sequential(train["model"])
        stored = stored_tensors.read_checkpoint(last)
        model.load_state_dict({name: as_torch(stored[name]) for name in model.state_dict()})
        return model


def evaluate(model, table):
    """Score and loss on the rows that were held back."""
    with torch.no_grad():
        outputs = model(table.features[table.trained:])
    targets = table.targets[table.trained:]
    return table.score(outputs, targets), table.loss(outputs, targets).item()


def row(name, results):
    spread = [f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
              for values, digits in zip(zip(*results), (3, 4))]
    print(f"| {name} | {spread[0]} | {spread[1]} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path, default=ROOT / "examples/mlp.yaml")
    parser.add_argument("--build", default="build")
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--peer-only", action="store_true")
    options = parser.parse_args()
    train = yaml.safe_load(options.job.read_text())["spec"]["train"]
    table = Table(options.job.parent, train)
    torch.set_num_threads(1)
    print(f"{table.trained} rows trained on, {len(table.targets) - table.trained} held back, "
          f"{options.seeds} seeds, PyTorch {torch.__version__}; median (least to most)\n")
    score = "coefficient of determination" if table.is_regression else "accuracy, %"
    print(f"| trained by | {score} | loss |\n|---|---|---|")
    seeds = range(1, options.seeds + 1)
    row("PyTorch", [evaluate(train_peer(train, table, seed), table) for seed in seeds])
    if not options.peer_only:
        row("Lockstep", [evaluate(train_ours(options, yaml.safe_load(options.job.read_text()), seed), table)
                         for seed in seeds])


if __name__ == "__main__":
    main()
