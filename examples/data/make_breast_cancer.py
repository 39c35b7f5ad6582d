#!/usr/bin/env python3
"""Writes breast_cancer_features.npy and breast_cancer_targets.npy next to this script.

Takes the table from scikit-learn (Debian's python3-sklearn), which has a copy of UCI's. The rows are shuffled, since
training holds back the last ones. Each column is then scaled to mean 0 and deviation 1 over the first 80 % of the rows.
"""
import pathlib

import numpy as np
from sklearn.datasets import load_breast_cancer

FOLDER = pathlib.Path(__file__).resolve().parent
TRAINED = 0.8  # 1 - validationFraction of examples/mlp.yaml


def main():
    table = load_breast_cancer()
    order = np.random.RandomState(1).permutation(len(table.target))  # the same in every version of NumPy
    features, targets = table.data[order], table.target[order]
    trained = features[:round(TRAINED * len(features))]
    features = (features - trained.mean(axis=0)) / trained.std(axis=0)
    np.save(FOLDER / "breast_cancer_features.npy", features.astype("<f4"))
    np.save(FOLDER / "breast_cancer_targets.npy", targets.astype("u1"))


if __name__ == "__main__":
    main()
