#!/usr/bin/env python3
"""Writes clicks.libsvm and clicks.txt: rows with a label, and the logistic regression that scikit-learn fits to them.

    python3 make_clicks_golden.py FOLDER

clicks.txt has the bias and the weights of the indices 1 to 6, one a line, for the mean log loss plus 0.005 times the sum
of the squared weights. Written with scikit-learn 1.9.1.
"""
import pathlib
import sys

import numpy
from sklearn.linear_model import LogisticRegression

ROWS, FEATURES, DECAY = 240, 6, 0.01

folder = pathlib.Path(sys.argv[1])
random = numpy.random.default_rng(5)
values = numpy.round(random.normal(size=(ROWS, FEATURES)), 3)
truth = random.normal(size=FEATURES)
labels = (random.uniform(size=ROWS) < 1 / (1 + numpy.exp(-(values @ truth - 0.5)))).astype(int)
with open(folder / "clicks.libsvm", "w", encoding="ascii") as out:
    for label, row in zip(labels, values):
        out.write(f"{label} " + " ".join(f"{i + 1}:{value:g}" for i, value in enumerate(row)) + "\n")
model = LogisticRegression(C=1 / (DECAY * ROWS), tol=1e-10, max_iter=10000).fit(values, labels)
with open(folder / "clicks.txt", "w", encoding="ascii") as out:
    for number in [*model.intercept_, *model.coef_[0]]:
        out.write(f"{number:.9f}\n")
