#!/usr/bin/env python3
"""Trains small convolutional networks with PyTorch and writes losses, gradients and steps of each optimizer.

    make_convnet_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

A lenet5 takes ten steps and a resnet20 one, with small images, in double precision. Later steps of the resnet20
depend on rounding: PyTorch's own losses in fp32 are off by 0.01 from the third one on. All tensors of a training begin with its name, such
as "resnet20.adamw.". Names are torchvision's. Both sides compute the initial parameters and the images with
formula(), so that the file needs none. Of each parameter it has every stride-th element, in our order: filters
[out, height, width, in]. golden.py explains "deviation.".
"""
import sys

import torch
import torch.nn.functional as F

import golden
from muon import Muon

BATCH, CLASSES, SAMPLED = 4, 10, 96
STEPS = {"lenet5": 10, "resnet20": 1}
IMAGE = {"lenet5": (1, 12), "resnet20": (3, 8)}  # channels, edge
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
ADAGRAD = dict(lr=5e-3, eps=1e-8, weight_decay=1e-3)
MUON = dict(rate=1e-2, momentum=0.95)
SGD = dict(lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-3)
TRIALS = 6


def formula(count, salt):
    """Values in [-1, 1) that are exact in fp32: bits 8 to 31 of a product, as a fraction."""
    index = torch.arange(count, dtype=torch.int64) + 1000003 * salt
    bits = (index * 2654435761) % 2**32
    return (bits // 256).double() / 2**23 - 1


def conv(name, out, into, edge):
    return {name + ".weight": (out, edge, edge, into)}


def norm(name, size):
    return {f"{name}.{part}": (size,) for part in ("weight", "bias", "running_mean", "running_var")}


def resnet20_shapes():
    shapes = {**conv("conv1", 16, 3, 3), **norm("bn1", 16)}
    into = 16
    for stage, out in enumerate((16, 32, 64)):
        for block in range(3):
            prefix = f"layer{stage + 1}.{block}."
            if into != out:
                shapes |= {**conv(prefix + "downsample.0", out, into, 1), **norm(prefix + "downsample.1", out)}
            shapes |= {**conv(prefix + "conv1", out, into, 3), **norm(prefix + "bn1", out)}
            shapes |= {**conv(prefix + "conv2", out, out, 3), **norm(prefix + "bn2", out)}
            into = out
    return shapes | {"fc.weight": (CLASSES, 1, 1, 64), "fc.bias": (CLASSES,)}


def lenet5_shapes():
    shapes = {}
    for name, out, into, edge in (("conv1", 6, 1, 5), ("conv2", 16, 6, 5), ("fc1", 120, 16, 1), ("fc2", 84, 120, 1),
                                  ("fc3", CLASSES, 84, 1)):
        shapes |= {**conv(name, out, into, edge), name + ".bias": (out,)}
    return shapes


def initial_parameters(shapes):
    """Filters and biases as wide as PyTorch draws them; norms near 1 and 0."""
    values = {}
    for salt, (name, shape) in enumerate(shapes.items()):
        flat = formula(torch.Size(shape).numel(), salt)
        if len(shape) == 4:
            flat = flat / (shape[1] * shape[2] * shape[3]) ** 0.5
        elif name.endswith(("running_var", "weight")):
            flat = 1 + flat / 8
        else:
            flat = flat / 8
        values[name] = flat.float().double().reshape(shape)
    return values


class Network:
    def __init__(self, kind, values):
        self.kind = kind
        self.w = {name: value.clone().requires_grad_("running" not in name) for name, value in values.items()}
        self.training = True

    def trained(self):
        return {name: value for name, value in self.w.items() if value.requires_grad}

    def conv(self, name, x, stride=1, padding=0):
        return F.conv2d(x, self.w[name + ".weight"].permute(0, 3, 1, 2), self.w.get(name + ".bias"), stride, padding)

    def norm(self, name, x):
        w = self.w
        return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"],
                            w[name + ".bias"], self.training, 0.1, 1e-5)

    def logits(self, x):
        return self.lenet5(x) if self.kind == "lenet5" else self.resnet20(x)

    def lenet5(self, x):
        x = F.max_pool2d(F.relu(self.conv("conv1", x, padding=2)), 2)
        x = F.max_pool2d(F.relu(self.conv("conv2", x)), 2)
        return self.conv("fc3", F.relu(self.conv("fc2", F.relu(self.conv("fc1", x))))).flatten(1)

    def resnet20(self, x):
        x = F.relu(self.norm("bn1", self.conv("conv1", x, padding=1)))
        for stage in range(3):
            for block in range(3):
                prefix = f"layer{stage + 1}.{block}."
                stride = 2 if stage > 0 and block == 0 else 1
                shortcut = x
                if stride == 2:
                    shortcut = self.norm(prefix + "downsample.1", self.conv(prefix + "downsample.0", x, 2))
                y = F.relu(self.norm(prefix + "bn1", self.conv(prefix + "conv1", x, stride, 1)))
                x = F.relu(self.norm(prefix + "bn2", self.conv(prefix + "conv2", y, 1, 1)) + shortcut)
        return self.conv("fc", x.mean((2, 3), keepdim=True)).flatten(1)


def optimizer_of(name, w):
    groups = [{"params": [v for v in w.values() if v.dim() > 1]},
              {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}]
    if name == "muon":
        return muon(w)
    kind, options = {"adamw": (torch.optim.AdamW, ADAMW), "sgd": (torch.optim.SGD, SGD),
                     "adagrad": (torch.optim.Adagrad, ADAGRAD)}[name]
    return kind(groups, **options)


def muon(w):
    """Makes a Muon of the filters between the first layer and the last one."""
    filters = [v for v in w.values() if v.dim() > 1]
    hidden = filters[1:-1]
    return Muon(hidden, [1] * len(hidden), [filters[0], filters[-1]], [v for v in w.values() if v.dim() == 1],
                ADAMW, **MUON)


class Training:
    """Losses, first gradients and final values; with a deviation, gradients are off as fp32 ones are."""

    def __init__(self, kind, optimizer, initial, images, labels, deviation=0.0, seed=0):
        net = Network(kind, initial)
        steps = optimizer_of(optimizer, net.trained())
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for step in range(STEPS[kind]):
            steps.zero_grad()
            loss = F.cross_entropy(net.logits(images[step]), labels[step])
            loss.backward()
            if step == 0:
                self.gradients = {name: value.grad.clone() for name, value in net.trained().items()}
            if deviation:
                golden.perturb(net.trained(), deviation, generator)
            steps.step()
            if deviation:
                for value in net.w.values():
                    value.data = value.data.float().double()
            losses.append(loss.detach())
        self.losses = torch.stack(losses)
        self.values = {name: value.detach() for name, value in net.w.items()}
        net.training = False
        with torch.no_grad():
            self.logits = net.logits(images[0])


def sampled(value):
    flat = value.reshape(-1)
    return flat[::max(1, len(flat) // SAMPLED)].float()


def add_training(out, kind, optimizer):
    shapes = lenet5_shapes() if kind == "lenet5" else resnet20_shapes()
    channels, edge = IMAGE[kind]
    initial = initial_parameters(shapes)
    steps = STEPS[kind]
    images = formula(steps * BATCH * edge * edge * channels, 77).float().double()
    images = images.reshape(steps, BATCH, edge, edge, channels).permute(0, 1, 4, 2, 3)
    labels = ((formula(steps * BATCH, 78) + 1) * CLASSES / 2).long().reshape(steps, BATCH)
    terms = sum(2 * torch.Size(shape[1:]).numel() for shape in shapes.values()) + BATCH * edge * edge * len(shapes)
    deviation = golden.gradient_deviation(terms)
    true = Training(kind, optimizer, initial, images, labels)
    trials = [Training(kind, optimizer, initial, images, labels, deviation, seed + 1) for seed in range(TRIALS)]
    prefix = f"{kind}.{optimizer}."
    for name, value in true.values.items():
        if name in true.gradients:
            out[f"{prefix}gradient.{name}"] = sampled(true.gradients[name])
        out[f"{prefix}final.{name}"] = sampled(value)
        out[f"{prefix}deviation.{name}"] = sampled(
            golden.root_mean_square([one.values[name] for one in trials], value))
    for what in ("losses", "logits"):
        value = getattr(true, what)
        out[prefix + what] = value.float()
        out[f"{prefix}deviation.{what}"] = golden.root_mean_square(
            [getattr(one, what) for one in trials], value).float()
    out[prefix + "gradientDeviation"] = torch.tensor([deviation]).float()
    print(f"{prefix}: losses {true.losses[0]:.4f} to {true.losses[-1]:.4f}")


def main(path):
    out = {}
    for kind in IMAGE:
        for optimizer in ("adamw", "sgd", "adagrad", "muon"):
            add_training(out, kind, optimizer)
    golden.write_safetensors(path, out, {
        "batch": str(BATCH), **{f"{kind}.steps": str(steps) for kind, steps in STEPS.items()}, "classes": str(CLASSES), "sampled": str(SAMPLED),
        "adamw.learningRate": str(ADAMW["lr"]), "adamw.weightDecay": str(ADAMW["weight_decay"]),
        "beta1": str(ADAMW["betas"][0]), "beta2": str(ADAMW["betas"][1]), "epsilon": str(ADAMW["eps"]),
        "adagrad.learningRate": str(ADAGRAD["lr"]), "adagrad.weightDecay": str(ADAGRAD["weight_decay"]),
        "muon.learningRate": str(ADAMW["lr"]), "muon.weightDecay": str(ADAMW["weight_decay"]),
        "matrixLearningRate": str(MUON["rate"]), "matrixMomentum": str(MUON["momentum"]),
        "sgd.learningRate": str(SGD["lr"]), "sgd.weightDecay": str(SGD["weight_decay"]),
        "momentum": str(SGD["momentum"]), "torch": torch.__version__})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
