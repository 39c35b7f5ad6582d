#!/usr/bin/env python3
"""Trains a small GPT-2 with PyTorch and writes losses, gradients and ten steps of each optimizer.

    make_gpt2_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

Names are those of Hugging Face's GPT2LMHeadModel; matrices are [out, in] as in torch.nn.Linear.
golden.py explains how it is computed.
"""
import math
import sys

import torch
import torch.nn.functional as F

import golden

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 2, 16, 2, 8, 17
BATCH, STEPS = 4, 10
SEED = 20


def initial_weights(generator):
    """Returns weights larger than GPT-2's, so that every path has a gradient worth comparing."""

    def normal(*dims):
        return torch.randn(*dims, generator=generator, dtype=torch.float64)

    c = WIDTH
    weights = {"transformer.wte.weight": 0.3 * normal(VOCABULARY, c),
               "transformer.wpe.weight": 0.3 * normal(CONTEXT, c)}

    def norm(name):
        weights[name + ".weight"] = 1 + 0.1 * normal(c)
        weights[name + ".bias"] = 0.1 * normal(c)

    def linear(name, out, into):
        weights[name + ".weight"] = 0.2 * normal(out, into)
        weights[name + ".bias"] = 0.1 * normal(out)

    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        norm(prefix + "ln_1")
        linear(prefix + "attn.c_attn", 3 * c, c)
        linear(prefix + "attn.c_proj", c, c)
        norm(prefix + "ln_2")
        linear(prefix + "mlp.c_fc", 4 * c, c)
        linear(prefix + "mlp.c_proj", c, 4 * c)
    norm("transformer.ln_f")
    return golden.as_the_reader_has_them(weights)


def roundings():
    """Terms of the sums on the longest path to a gradient: two norms, the products for q, k, v, scores,
    values, output and both of the MLP of each layer, the last norm, head and softmax; all again in backward,
    and the rows of the batch.
    """
    layer = 5 * WIDTH + WIDTH // HEADS + 2 * CONTEXT + 4 * WIDTH
    return 2 * (LAYERS * layer + 2 * WIDTH + VOCABULARY) + BATCH * CONTEXT


def loss_of(w, tokens, targets):
    """Returns the mean cross-entropy of GPT-2 (Radford et al., 2019)."""
    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    batch, length = tokens.shape
    x = F.embedding(tokens, w["transformer.wte.weight"]) + w["transformer.wpe.weight"][:length]
    future = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        qkv = linear(prefix + "attn.c_attn", norm(prefix + "ln_1", x))
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in qkv.split(WIDTH, dim=2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        attention = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + linear(prefix + "attn.c_proj",
                       attention.transpose(1, 2).reshape(batch, length, WIDTH))
        hidden = F.gelu(linear(prefix + "mlp.c_fc", norm(prefix + "ln_2", x)), approximate="tanh")
        x = x + linear(prefix + "mlp.c_proj", hidden)
    logits = F.linear(norm("transformer.ln_f", x), w["transformer.wte.weight"])
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def parts_of(name):
    if ".h." not in name:
        return 0
    return 3 if "c_attn" in name else 1


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    w = initial_weights(generator)
    text = torch.randint(VOCABULARY, (STEPS, BATCH, CONTEXT + 1), generator=generator)
    golden.write_training(path, w, loss_of, text, roundings(), {
        "layers": LAYERS, "width": WIDTH, "heads": HEADS, "context": CONTEXT,
        "vocabulary": VOCABULARY}, golden.other_optimizers(parts_of))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
