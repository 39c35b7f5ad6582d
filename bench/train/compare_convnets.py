#!/usr/bin/env python3
"""Compares the speed of convolutional networks on the CPU with PyTorch's, in turns.

  python3 -m venv env && env/bin/pip install torch numpy    # a current release
  bench/train/compare_convnets.py --build build-release --python env/bin/python --turns 5

One process trains resnet20 or vgg11 (docs/images.md) on random images of 32 x 32 x 3 bytes, in fp32, channels-last, with
SGD and momentum, the same batch and the same number of threads on both sides. A turn runs one after the other; steps are
compared by their median, without the first ones. Prints Markdown: images per second, and the median over the turns
of the ratio, with its range. Exits with 77 if --python has no PyTorch.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import local_job
from checkpoints import processor

HERE = pathlib.Path(__file__).resolve().parent
IMAGES, EDGE, CHANNELS, CLASSES = 1024, 32, 3, 10
WARMUP = 3


def npy(shape, kind, data):
    """Returns an array in NumPy's format."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


def write_images(folder):
    (folder / "images.npy").write_bytes(npy((IMAGES, EDGE, EDGE, CHANNELS), "|u1", os.urandom(IMAGES * EDGE * EDGE * CHANNELS)))
    labels = b"".join((i % CLASSES).to_bytes(4, "little") for i in range(IMAGES))
    (folder / "labels.npy").write_bytes(npy((IMAGES,), "<i4", labels))


def ours(options, model, folder):
    """Returns the seconds of each step."""
    train = {"model": {"preset": model}, "data": {"features": "images.npy", "targets": "labels.npy"}, "steps": options.steps,
             "batch": {"global": options.batch}, "optimizer": {"name": "sgd", "learningRate": 1e-3, "schedule": "constant",
                                                                "weightDecay": 0, "clipNorm": 0}}
    job = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "convnet"},
           "spec": {"nodes": 1, "threadsPerProcess": options.threads, "train": train, "checkpoint": {"atEnd": False}}}
    with tempfile.TemporaryDirectory(dir=folder) as output:
        file = folder / "job.json"
        file.write_text(json.dumps(job))
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        done = subprocess.run([program, "run", file, "--output", f"{output}/out"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lockstep run: {done.stderr[-2000:]}")
        return [numbers["seconds"]["total"] for numbers in local_job.steps(pathlib.Path(output) / "out") if "seconds" in numbers]


def peer(options, model):
    command = [options.python, HERE / "torch_convnet.py", model, options.batch, options.steps, options.threads]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"PyTorch: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--models", default="resnet20,vgg11")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"no PyTorch for {options.python}; choose another interpreter with --python")
        sys.exit(77)
    print(f"{processor()}. Batch {options.batch}, {options.threads} threads, {options.steps} steps a run, {options.turns} turns.\n")
    print("| model | Lockstep, images/s | PyTorch, images/s | ratio (least to most) |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_images(folder)
        for model in options.models.split(","):
            rates = []
            for _ in range(options.turns):
                found = ours(options, model, folder), peer(options, model)
                rates.append([options.batch / statistics.median(seconds[WARMUP:]) for seconds in found])
            medians = [statistics.median(side) for side in zip(*rates)]
            ratios = sorted(mine / theirs for mine, theirs in rates)
            print(f"| {model} | {medians[0]:.0f} | {medians[1]:.0f} | {statistics.median(ratios):.2f} "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
