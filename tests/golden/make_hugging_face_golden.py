#!/usr/bin/env python3
"""Writes a small GPT-2 as Hugging Face stores it, with its loss as PyTorch computes it.

    make_hugging_face_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

The tensors are GPT2LMHeadModel's (transformers, models/gpt2/modeling_gpt2.py):
  - Conv1D's matrices are [in, out] and multiply from the right;
  - h.N.attn.bias and masked_bias are buffers;
  - the head is stored although it is tied.
Embeddings are F16, the first block's matrices BF16 and the rest F32, as PyTorch rounds them.
Tokens, targets and the loss are text in the metadata, so that the file has only the model's
tensors. The loss is computed in double precision from the rounded weights.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

import golden

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 2, 16, 2, 8, 17
BATCH = 4
SEED = 21


def weights():
    """Returns the state of GPT2LMHeadModel, larger than usual, so that every path counts."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(*dims):
        return torch.randn(*dims, generator=generator, dtype=torch.float64).float()

    state = {"transformer.wte.weight": (0.3 * normal(VOCABULARY, WIDTH)).half(),
             "transformer.wpe.weight": (0.3 * normal(CONTEXT, WIDTH)).half()}

    def norm(name):
        state[name + ".weight"] = 1 + 0.1 * normal(WIDTH)
        state[name + ".bias"] = 0.1 * normal(WIDTH)

    def conv1d(name, into, out, dtype):
        state[name + ".weight"] = (0.2 * normal(into, out)).to(dtype)
        state[name + ".bias"] = 0.1 * normal(out)

    for layer in range(LAYERS):
        dtype = torch.bfloat16 if layer == 0 else torch.float32
        prefix = f"transformer.h.{layer}."
        norm(prefix + "ln_1")
        causal = torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.uint8))
        state[prefix + "attn.bias"] = causal.view(1, 1, CONTEXT, CONTEXT)
        state[prefix + "attn.masked_bias"] = torch.tensor(-1e4)
        conv1d(prefix + "attn.c_attn", WIDTH, 3 * WIDTH, dtype)
        conv1d(prefix + "attn.c_proj", WIDTH, WIDTH, dtype)
        norm(prefix + "ln_2")
        conv1d(prefix + "mlp.c_fc", WIDTH, 4 * WIDTH, dtype)
        conv1d(prefix + "mlp.c_proj", 4 * WIDTH, WIDTH, dtype)
    norm("transformer.ln_f")
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def loss_of(state, tokens, targets):
    """Returns the mean cross-entropy, as GPT2LMHeadModel's forward computes it."""
    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), state[name + ".weight"], state[name + ".bias"], 1e-5)

    def conv1d(name, x):
        weight = state[name + ".weight"]
        flat = torch.addmm(state[name + ".bias"], x.reshape(-1, x.size(-1)), weight)
        return flat.view(*x.shape[:-1], weight.size(1))

    batch, length = tokens.shape
    x = F.embedding(tokens, state["transformer.wte.weight"])
    x = x + state["transformer.wpe.weight"][:length]
    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        qkv = conv1d(prefix + "attn.c_attn", norm(prefix + "ln_1", x))
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in qkv.split(WIDTH, dim=2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        causal = state[prefix + "attn.bias"].bool()[:, :, :length, :length]
        attention = scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v
        x = x + conv1d(prefix + "attn.c_proj",
                       attention.transpose(1, 2).reshape(batch, length, WIDTH))
        hidden = F.gelu(conv1d(prefix + "mlp.c_fc", norm(prefix + "ln_2", x)), approximate="tanh")
        x = x + conv1d(prefix + "mlp.c_proj", hidden)
    logits = F.linear(norm("transformer.ln_f", x), state["lm_head.weight"])
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1)).item()


def main(path):
    state = weights()
    generator = torch.Generator().manual_seed(SEED + 1)
    text = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=generator)
    tokens, targets = text[:, :-1], text[:, 1:]
    loss = loss_of({name: value.double() for name, value in state.items()}, tokens, targets)
    golden.write_safetensors(path, state, {
        "format": "pt", "heads": str(HEADS), "loss": repr(loss),
        "tokens": json.dumps(tokens.flatten().tolist()),
        "targets": json.dumps(targets.flatten().tolist()), "torch": torch.__version__})
    print(f"{path}: loss {loss:.6f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
