#!/usr/bin/env python3
"""Trains small MLPs with PyTorch and writes losses, gradients and ten steps of each optimizer.

    make_mlp_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

One model for each activation, task and optimizer below; all tensors of a model begin with its name, such as
"gelu.classification.adamw.". Names are those of nn.Sequential; all in double precision from fp32 weights and
samples. golden.py explains "deviation.".
"""
import sys

import torch
import torch.nn.functional as F

import golden
from muon import Muon

INPUTS, HIDDEN, CLASSES, VALUES = 5, [16, 7], 4, 3
BATCH, STEPS, SEED = 6, 10, 30
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh,
               "gelu": lambda x: F.gelu(x, approximate="tanh")}
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def widths(task):
    return [INPUTS, *HIDDEN, CLASSES if task == "classification" else VALUES]


def initial_weights(task, generator):
    w = {}
    for layer, (into, out) in enumerate(zip(widths(task), widths(task)[1:])):
        w[f"{2 * layer}.weight"] = torch.randn(out, into, generator=generator, dtype=torch.float64) * into**-0.5
        w[f"{2 * layer}.bias"] = 0.1 * torch.randn(out, generator=generator, dtype=torch.float64)
    return golden.as_the_reader_has_them(w)


def loss_of(w, activation, task, features, targets):
    x = features
    for layer in range(len(HIDDEN) + 1):
        x = F.linear(x, w[f"{2 * layer}.weight"], w[f"{2 * layer}.bias"])
        if layer < len(HIDDEN):
            x = ACTIVATIONS[activation](x)
    return F.cross_entropy(x, targets) if task == "classification" else F.mse_loss(x, targets)


MUON = dict(rate=2e-2, momentum=0.95)
SGD = dict(lr=ADAMW["lr"], momentum=0.9, nesterov=True, weight_decay=ADAMW["weight_decay"])
ADAGRAD = dict(lr=ADAMW["lr"], eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"])


def groups(w):
    """Biases do not decay."""
    return [{"params": [v for v in w.values() if v.dim() > 1]},
            {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}]


OPTIMIZERS = {"adamw": lambda w: torch.optim.AdamW(groups(w), **ADAMW),
              "sgd": lambda w: torch.optim.SGD(groups(w), **SGD),
              "adagrad": lambda w: torch.optim.Adagrad(groups(w), **ADAGRAD),
              "muon": lambda w: muon(w)}


def muon(w):
    """Makes a Muon of the matrices between the first layer and the last one."""
    matrices = [v for v in w.values() if v.dim() > 1]
    hidden = matrices[1:-1]
    return Muon(hidden, [1] * len(hidden), [matrices[0], matrices[-1]], [v for v in w.values() if v.dim() == 1],
                ADAMW, **MUON)


def roundings():
    """Terms of the sums on the longest path to a gradient: the products, forward and backward, and the batch."""
    return 2 * (INPUTS + sum(HIDDEN) + CLASSES) + BATCH


class Training:
    """Losses, first gradients and final weights; with a deviation, gradients are off as fp32 ones are."""

    def __init__(self, initial, loss_at, optimizer_of, deviation=0.0, seed=0):
        w = {name: value.detach().clone().requires_grad_() for name, value in initial.items()}
        optimizer = optimizer_of(w)
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_at(w, step)
            loss.backward()
            if step == 0:
                self.gradients = {name: value.grad.clone() for name, value in w.items()}
            if deviation:
                golden.perturb(w, deviation, generator)
            optimizer.step()
            if deviation:
                for value in w.values():
                    value.data = value.data.float().double()
            losses.append(loss.detach())
        self.losses = torch.stack(losses)
        self.weights = {name: value.detach() for name, value in w.items()}


def add_model(out, prefix, activation, task, optimizer, data):
    features, targets = data
    initial = initial_weights(task, torch.Generator().manual_seed(SEED))

    def loss_at(w, step):
        return loss_of(w, activation, task, features[step], targets[step])

    true = Training(initial, loss_at, OPTIMIZERS[optimizer])
    deviation = golden.gradient_deviation(roundings())
    trials = [Training(initial, loss_at, OPTIMIZERS[optimizer], deviation, seed + 1)
              for seed in range(golden.TRIALS)]
    for name, value in initial.items():
        out[f"{prefix}initial.{name}"] = value.detach().float()
        out[f"{prefix}gradient.{name}"] = true.gradients[name].float()
        out[f"{prefix}final.{name}"] = true.weights[name].float()
        out[f"{prefix}deviation.{name}"] = golden.root_mean_square(
            [one.weights[name] for one in trials], true.weights[name]).float()
    out[prefix + "losses"] = true.losses.float()
    out[prefix + "deviation.losses"] = golden.root_mean_square(
        [one.losses for one in trials], true.losses).float()
    print(f"{prefix}: losses {true.losses[0]:.4f} to {true.losses[-1]:.4f}")


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    features = torch.randn(STEPS, BATCH, INPUTS, generator=generator).double()
    targets = {"classification": torch.randint(CLASSES, (STEPS, BATCH), generator=generator),
               "regression": torch.randn(STEPS, BATCH, VALUES, generator=generator).double()}
    out = {"features": features.float(), "labels": targets["classification"].int(),
           "values": targets["regression"].float()}
    for activation in ACTIVATIONS:
        for task, answers in targets.items():
            for optimizer in OPTIMIZERS:
                add_model(out, f"{activation}.{task}.{optimizer}.", activation, task, optimizer,
                          (features, answers))
    golden.write_safetensors(path, out, {
        "inputs": str(INPUTS), "hidden": ",".join(map(str, HIDDEN)), "classes": str(CLASSES),
        "values": str(VALUES), "batch": str(BATCH), "steps": str(STEPS),
        "learningRate": str(ADAMW["lr"]), "beta1": str(ADAMW["betas"][0]),
        "beta2": str(ADAMW["betas"][1]), "epsilon": str(ADAMW["eps"]),
        "weightDecay": str(ADAMW["weight_decay"]), "momentum": str(SGD["momentum"]),
        "matrixLearningRate": str(MUON["rate"]), "matrixMomentum": str(MUON["momentum"]),
        "gradientDeviation": str(golden.gradient_deviation(roundings())), "torch": torch.__version__})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
