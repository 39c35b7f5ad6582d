#!/usr/bin/env python3
"""Writes a small BERT as Hugging Face stores one, with its loss as PyTorch computes it.

    make_hugging_face_bert_golden.py OUT.safetensors        needs PyTorch

The file is like that of bert-base-uncased: the norms' weight and bias are gamma and beta, there are
a pooler and the head of the next sentence's prediction, and the tied head is not stored. The
embedding is F16, the first layer's matrices BF16 and the rest F32, as PyTorch rounds them. Tokens,
targets and the loss are text in the metadata. The loss is computed in double precision from the
rounded weights.
"""
import json
import sys

import torch

import bert
import golden

BATCH = 4
SEED = 25


def dtype_of(name, tensor):
    if name.startswith("bert.embeddings.word"):
        return torch.float16
    return torch.bfloat16 if ".layer.0." in name and tensor.dim() > 1 else torch.float32


def old_name(name):
    if "LayerNorm" not in name:
        return name
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    state = bert.initial_weights(generator, tied=True)
    state = {name: tensor.to(dtype_of(name, tensor)) for name, tensor in state.items()}
    tokens, targets = bert.masked_batches(generator, BATCH)
    loss = bert.loss_of({name: w.double() for name, w in state.items()}, tokens, targets).item()
    state = {old_name(name): tensor for name, tensor in state.items()}
    state["bert.pooler.dense.weight"] = torch.zeros(bert.WIDTH, bert.WIDTH)
    state["bert.pooler.dense.bias"] = torch.zeros(bert.WIDTH)
    state["cls.seq_relationship.weight"] = torch.zeros(2, bert.WIDTH)
    state["cls.seq_relationship.bias"] = torch.zeros(2)
    golden.write_safetensors(path, state, {
        "format": "pt", **{key: str(value) for key, value in bert.METADATA.items()}, "head": "tied",
        "loss": repr(loss), "tokens": json.dumps(tokens.flatten().tolist()),
        "targets": json.dumps(targets.flatten().tolist()), "torch": torch.__version__})
    print(f"{path}: loss {loss:.6f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
