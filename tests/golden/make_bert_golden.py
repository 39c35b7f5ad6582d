#!/usr/bin/env python3
"""Trains a small BERT with PyTorch and writes losses, gradients and ten steps of each optimizer.

    make_bert_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

Names are those of Hugging Face's BertForMaskedLM; the head is tied. golden.py explains how it is
computed; bert.py is the model.
"""
import sys

import torch

import bert
import golden

BATCH, STEPS = 4, 10
SEED = 24


def parts_of(name):
    return 1 if ".layer." in name or name == "cls.predictions.transform.dense.weight" else 0


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    weights = golden.as_the_reader_has_them(bert.initial_weights(generator, tied=True))
    batches = bert.masked_batches(generator, STEPS, BATCH)
    golden.write_training(path, weights, bert.loss_of, batches, bert.roundings(BATCH),
                          {**bert.METADATA, "head": "tied"}, golden.other_optimizers(parts_of))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
