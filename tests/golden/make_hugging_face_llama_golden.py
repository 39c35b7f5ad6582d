#!/usr/bin/env python3
"""Writes a small Llama as Hugging Face stores one in several files, with its loss as PyTorch
computes it.

    make_hugging_face_llama_golden.py OUT.safetensors.index.json        needs PyTorch

Writes OUT-00001-of-00002.safetensors and OUT-00002-of-00002.safetensors next to the index. The head
is tied and not stored. The embedding is F16, the first layer's matrices BF16 and the rest F32, as
PyTorch rounds them. One layer has rotary_emb.inv_freq, a buffer of older versions. Tokens, targets
and the loss are text in the first file's metadata. The loss is computed in double precision from
the rounded weights.
"""
import json
import os
import sys

import torch

import golden
import llama

BATCH = 4
SEED = 23
END = ".safetensors.index.json"


def dtype_of(name, tensor):
    if name.startswith("model.embed_tokens."):
        return torch.float16
    return torch.bfloat16 if ".layers.0." in name and tensor.dim() > 1 else torch.float32


def main(index):
    assert index.endswith(END), __doc__
    generator = torch.Generator().manual_seed(SEED)
    state = llama.initial_weights(generator, tied=True)
    state = {name: tensor.to(dtype_of(name, tensor)) for name, tensor in state.items()}
    text = torch.randint(llama.VOCABULARY, (BATCH, llama.CONTEXT + 1), generator=generator)
    tokens, targets = text[:, :-1], text[:, 1:]
    loss = llama.loss_of({name: w.double() for name, w in state.items()}, tokens, targets).item()
    state["model.layers.1.self_attn.rotary_emb.inv_freq"] = llama.frequencies().float()

    names, stem = list(state), index[:-len(END)]
    halves = [names[:len(names) // 2], names[len(names) // 2:]]
    metadata = {"format": "pt", **{key: str(value) for key, value in llama.METADATA.items()},
                "head": "tied", "loss": repr(loss), "tokens": json.dumps(tokens.flatten().tolist()),
                "targets": json.dumps(targets.flatten().tolist()), "torch": torch.__version__}
    weight_map = {}
    for number, half in enumerate(halves, start=1):
        path = f"{stem}-0000{number}-of-00002.safetensors"
        golden.write_safetensors(path, {name: state[name] for name in half},
                                 metadata if number == 1 else {"format": "pt"})
        weight_map.update({name: os.path.basename(path) for name in half})
    with open(index, "w") as file:
        json.dump({"metadata": {"total_size": sum(len(golden.blob_of(t)) for t in state.values())},
                   "weight_map": weight_map}, file, indent=2)
        file.write("\n")
    print(f"{index}: loss {loss:.6f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
