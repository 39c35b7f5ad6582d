#!/usr/bin/env python3
"""Trains a resnet20 or vgg11 with PyTorch on random images of CIFAR's shape, for compare_convnets.py.

  bench/train/torch_convnet.py MODEL BATCH STEPS THREADS

Channels-last, fp32, SGD with momentum. Prints the seconds of each step as JSON.
"""
import json
import sys
import time

import torch
from torch import nn

EDGE, CLASSES = 32, 10
VGG11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def conv(into, out, stride=1, edge=3):
    return [nn.Conv2d(into, out, edge, stride, edge // 2, bias=False), nn.BatchNorm2d(out)]


class Block(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        stride = 1 if into == out else 2
        self.body = nn.Sequential(*conv(into, out, stride), nn.ReLU(inplace=True), *conv(out, out))
        self.shortcut = nn.Identity() if into == out else nn.Sequential(*conv(into, out, stride, 1))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def resnet20():
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [Block(into, out) for into, out in zip(widths, widths[1:])]
    return nn.Sequential(*conv(3, 16), nn.ReLU(inplace=True), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, CLASSES))


def vgg11():
    layers, into = [], 3
    for out in VGG11:
        if out == "pool":
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [*conv(into, out), nn.ReLU(inplace=True)]
        into = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))


def main():
    name, batch, steps, threads = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = {"resnet20": resnet20, "vgg11": vgg11}[name]().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randint(0, 256, (1024, EDGE, EDGE, 3), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (1024,))
    seconds = []
    for step in range(steps):
        began = time.perf_counter()
        rows = torch.arange(step * batch, (step + 1) * batch) % len(images)
        x = (images[rows].float() / 255).permute(0, 3, 1, 2)  # channels-last
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels[rows]).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
