#!/usr/bin/env python3
"""Writes a small GPT-2 as PyTorch computes it: losses, gradients, and ten steps of AdamW.

    make_gpt2_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

Names are those of Hugging Face's GPT2LMHeadModel; matrices are [out, in] as in torch.nn.Linear. All
is computed in double precision and stored as fp32, so that whoever compares sees its own error.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 2, 16, 2, 8, 17
BATCH, STEPS = 4, 10
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CLIP_NORM = 0.5
SEED = 20


def initial_weights(generator):
    """Larger than GPT-2's own initial values, so that every path carries a gradient worth comparing."""

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
    # As the reader will have them: fp32 values.
    return {name: w.float().double().requires_grad_() for name, w in weights.items()}


def loss_of(w, tokens, targets):
    """The mean cross-entropy of GPT-2 (Radford et al., 2019)."""
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


def write_safetensors(path, tensors, metadata):
    """https://huggingface.co/docs/safetensors: 8 bytes of length, a JSON header, the data."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors.items():
        dtype = "I32" if tensor.dtype == torch.int32 else "F32"
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    w = initial_weights(generator)
    text = torch.randint(VOCABULARY, (STEPS, BATCH, CONTEXT + 1), generator=generator)
    tokens, targets = text[:, :, :-1], text[:, :, 1:]
    out = {"tokens": tokens.int(), "targets": targets.int()}
    out.update({"initial." + name: value.detach().float() for name, value in w.items()})

    optimizer = torch.optim.AdamW([
        {"params": [v for v in w.values() if v.dim() > 1]},
        {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}], **OPTIMIZER)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(w, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            out.update({"gradient." + name: value.grad.float() for name, value in w.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP_NORM))
        optimizer.step()
        losses.append(loss.detach())
    out["losses"] = torch.stack(losses).float()
    out["norms"] = torch.stack(norms).float()
    out.update({"final." + name: value.detach().float() for name, value in w.items()})
    write_safetensors(path, out, {
        "layers": str(LAYERS), "width": str(WIDTH), "heads": str(HEADS), "context": str(CONTEXT),
        "vocabulary": str(VOCABULARY), "learningRate": str(OPTIMIZER["lr"]),
        "beta1": str(OPTIMIZER["betas"][0]), "beta2": str(OPTIMIZER["betas"][1]),
        "epsilon": str(OPTIMIZER["eps"]), "weightDecay": str(OPTIMIZER["weight_decay"]),
        "clipNorm": str(CLIP_NORM), "torch": torch.__version__})
    print(f"{path}: losses {losses[0]:.4f} to {losses[-1]:.4f}, gradient norms "
          f"{min(norms):.3f} to {max(norms):.3f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
