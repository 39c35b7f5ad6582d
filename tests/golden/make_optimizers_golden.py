#!/usr/bin/env python3
"""Takes ten steps of each optimizer with PyTorch and writes the parameters and states after them.

    make_optimizers_golden.py OUT.safetensors

Gradients are drawn at random and the same for all optimizers. Half of the parameters decay. Computes in double
precision, from parameters and gradients that are exact in fp32.
"""
import sys

import torch

import golden

SEED, STEPS, COUNT = 7, 10, 96
DECAY = 0.1
# Names, and the names of their settings in the metadata, are what tests/agent/optim/golden_test.cc reads.
CASES = {
    "adamw": (torch.optim.AdamW, dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8)),
    "sgd": (torch.optim.SGD, dict(lr=1e-1)),
    "sgd_momentum": (torch.optim.SGD, dict(lr=1e-1, momentum=0.9)),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=1e-1, momentum=0.9, nesterov=True)),
    "adagrad": (torch.optim.Adagrad, dict(lr=1e-1, eps=1e-10)),
}
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer", "sum")


def train(kind, settings, initial, gradients):
    """Returns the values after the last step by name; the first half of the elements decays."""
    parameters = [half.clone().requires_grad_() for half in initial.chunk(2)]
    optimizer = kind([{"params": parameters[:1], "weight_decay": DECAY},
                      {"params": parameters[1:], "weight_decay": 0.0}], **settings)
    for gradient in gradients:
        for parameter, half in zip(parameters, gradient.chunk(2)):
            parameter.grad = half.clone()
        optimizer.step()
    values = {"parameters": torch.cat([p.detach() for p in parameters])}
    for name in STATES:
        if all(optimizer.state[p].get(name) is not None for p in parameters):
            values[name] = torch.cat([optimizer.state[p][name] for p in parameters])
    return values


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    initial = torch.randn(COUNT, generator=generator)
    gradients = torch.randn(STEPS, COUNT, generator=generator)
    tensors = {"initial": initial, "gradients": gradients}
    metadata = {"weight_decay": str(DECAY)}
    for case, (kind, settings) in CASES.items():
        for name, values in train(kind, settings, initial.double(), gradients.double()).items():
            tensors[f"{case}.{name}"] = values.float()
        flat = dict(settings)
        flat["beta1"], flat["beta2"] = flat.pop("betas", (0.0, 0.0))
        for name in ("lr", "beta1", "beta2", "eps", "momentum"):
            metadata[f"{case}.{name}"] = str(flat.get(name, 0.0))
        metadata[f"{case}.nesterov"] = str(int(flat.get("nesterov", False)))
    golden.write_safetensors(path, tensors, metadata)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
