#!/usr/bin/env python3
"""Writes deep_clicks.txt: rows of a click log, and what PyTorch says of a wide-and-deep model and a DeepFM of them.

    python3 make_deep_clicks_golden.py FOLDER

A line has a name and numbers. First come the batch and the parameters, rounded so that floats are exact, then for each
model the logits and the gradients of the summed log loss, in double precision. Written with PyTorch 2.15.0.
"""
import pathlib
import sys

import torch

COLUMNS, FACTORS, HIDDEN, KEYS = 3, 2, [4, 3], 6

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def draw(*shape):
    return (torch.randn(*shape) * 64).round() / 64


out = open(pathlib.Path(sys.argv[1]) / "deep_clicks.txt", "w", encoding="ascii")


def write(name, values):
    numbers = torch.as_tensor(values, dtype=torch.float64).flatten().tolist()
    out.write(" ".join([name] + [repr(number) for number in numbers]) + "\n")


# The second row has no features, the third one a column twice.
labels = torch.tensor([1.0, 0.0, 0.0, 1.0])
row_begin = [0, 3, 3, 6, 8]
slots = [0, 2, 4, 1, 2, 5, 3, 0]
columns = [0, 1, 2, 0, 1, 1, 2, 0]
values = torch.tensor([1.0, 1.0, 0.5, 1.0, -2.0, 1.0, 1.0, 0.25])
rows = torch.tensor([row for row in range(4) for _ in range(row_begin[row], row_begin[row + 1])])
for name, numbers in [("labels", labels), ("row_begin", row_begin), ("slots", slots), ("columns", columns),
                      ("values", values)]:
    write(name, numbers)

parameters = {"bias": draw(1), "weights": draw(KEYS), "factors": draw(KEYS, FACTORS)}
inputs = COLUMNS * FACTORS
for layer, width in enumerate([*HIDDEN, 1]):
    parameters[f"hidden.{layer}.weight"] = draw(width, inputs)
    if width != 1:
        parameters[f"hidden.{layer}.bias"] = draw(width)
    inputs = width
for name, tensor in parameters.items():
    write(name, tensor)
    tensor.requires_grad_()


def logits(has_pairs):
    linear = parameters["bias"] + torch.zeros(4).index_add(0, rows, parameters["weights"][slots] * values)
    embedded = parameters["factors"][slots] * values[:, None]
    if has_pairs:
        sums = torch.zeros(4, FACTORS).index_add(0, rows, embedded)
        squares = torch.zeros(4, FACTORS).index_add(0, rows, embedded**2)
        linear = linear + 0.5 * (sums**2 - squares).sum(1)
    places = rows * COLUMNS + torch.tensor(columns)
    hidden = torch.zeros(4 * COLUMNS, FACTORS).index_add(0, places, embedded).reshape(4, -1)
    for layer in range(len(HIDDEN)):
        hidden = torch.relu(hidden @ parameters[f"hidden.{layer}.weight"].T + parameters[f"hidden.{layer}.bias"])
    return linear + hidden @ parameters[f"hidden.{len(HIDDEN)}.weight"][0]


for model, has_pairs in [("wideAndDeep", False), ("deepFactorizationMachine", True)]:
    for tensor in parameters.values():
        tensor.grad = None
    z = logits(has_pairs)
    torch.nn.functional.binary_cross_entropy_with_logits(z, labels, reduction="sum").backward()
    write(f"{model}.logits", z.detach())
    for name, tensor in parameters.items():
        write(f"{model}.{name}", tensor.grad)
