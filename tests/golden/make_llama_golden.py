#!/usr/bin/env python3
"""Trains a small Llama with PyTorch and writes losses, gradients and twenty steps of each optimizer.

    make_llama_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

Names are those of Hugging Face's LlamaForCausalLM; the head is not tied. golden.py explains how it
is computed; llama.py is the model.
"""
import sys

import torch

import golden
import llama

BATCH, STEPS = 4, 20
SEED = 22


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    weights = golden.as_the_reader_has_them(llama.initial_weights(generator, tied=False))
    text = torch.randint(llama.VOCABULARY, (STEPS, BATCH, llama.CONTEXT + 1), generator=generator)
    golden.write_training(path, weights, llama.loss_of, text, llama.roundings(BATCH),
                          {**llama.METADATA, "head": "untied"},
                          golden.other_optimizers(lambda name: 1 if ".layers." in name else 0))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
