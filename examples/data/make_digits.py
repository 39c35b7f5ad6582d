#!/usr/bin/env python3
"""Writes digits_images.npy and digits_targets.npy next to this script.

Takes the images from scikit-learn (Debian's python3-sklearn), which has a copy of UCI's test set. Pixels are counts from
0 to 16; times 15 they fill a byte, which training divides by 255.
"""
import pathlib

import numpy as np
from sklearn.datasets import load_digits

FOLDER = pathlib.Path(__file__).resolve().parent


def main():
    digits = load_digits()
    np.save(FOLDER / "digits_images.npy", (digits.images * 15).astype("u1")[..., np.newaxis])
    np.save(FOLDER / "digits_targets.npy", digits.target.astype("u1"))


if __name__ == "__main__":
    main()
