#!/usr/bin/env python3
"""Orthogonalises matrices, and takes five steps of Muon on small models' parameters with drawn gradients.

    make_muon_golden.py OUT.safetensors        needs PyTorch (Debian: python3-torch)

The update of matrices is that of muon.py; the other parameters are torch.optim.AdamW's. All in double precision, from values that are exact in fp32. The tables say
which parameters are matrices, with the rows of each part of a packed one.
"""
import sys

import torch

import golden
from muon import muon_step, newton_schulz

SEED, STEPS = 11, 5
MOMENTUM, RATE, MATRIX_RATE, DECAY = 0.95, 1e-2, 5e-2, 0.1
BETAS, EPSILON = (0.9, 0.95), 1e-8
SHAPES = {"wide": (24, 40), "tall": (40, 24), "square": (16, 16), "row": (1, 9), "column": (9, 1)}


def hidden(*rows, columns):
    """A matrix, or several that are packed."""
    return {"shape": (sum(rows), columns), "parts": rows, "decays": True}


def table(rows, columns):
    """An embedding, or the weights of a first or last layer."""
    return {"shape": (rows, columns), "parts": (), "decays": True}


def vector(size):
    return {"shape": (size,), "parts": (), "decays": False}


def norm(name):
    return {name + ".weight": vector(4), name + ".bias": vector(4)}


# Width 4, one layer, contexts of 2, 3 tokens.
GPT2 = {"transformer.wte.weight": table(3, 4), "transformer.wpe.weight": table(2, 4),
        **norm("transformer.h.0.ln_1"),
        "transformer.h.0.attn.c_attn.weight": hidden(4, 4, 4, columns=4),
        "transformer.h.0.attn.c_attn.bias": vector(12),
        "transformer.h.0.attn.c_proj.weight": hidden(4, columns=4),
        "transformer.h.0.attn.c_proj.bias": vector(4),
        **norm("transformer.h.0.ln_2"),
        "transformer.h.0.mlp.c_fc.weight": hidden(16, columns=4),
        "transformer.h.0.mlp.c_fc.bias": vector(16),
        "transformer.h.0.mlp.c_proj.weight": hidden(4, columns=16),
        "transformer.h.0.mlp.c_proj.bias": vector(4),
        **norm("transformer.ln_f")}
# One head of keys and values for two of queries.
LLAMA = {"model.embed_tokens.weight": table(3, 4),
         "model.layers.0.input_layernorm.weight": vector(4),
         "model.layers.0.self_attn.qkv_proj.weight": hidden(4, 2, 2, columns=4),
         "model.layers.0.self_attn.o_proj.weight": hidden(4, columns=4),
         "model.layers.0.post_attention_layernorm.weight": vector(4),
         "model.layers.0.mlp.gate_up_proj.weight": hidden(6, 6, columns=4),
         "model.layers.0.mlp.down_proj.weight": hidden(4, columns=6),
         "model.norm.weight": vector(4), "lm_head.weight": table(3, 4)}
LAYER = "bert.encoder.layer.0."
BERT = {"bert.embeddings.word_embeddings.weight": table(3, 4),
        "bert.embeddings.position_embeddings.weight": table(2, 4),
        "bert.embeddings.token_type_embeddings.weight": table(2, 4),
        **norm("bert.embeddings.LayerNorm"),
        LAYER + "attention.self.qkv.weight": hidden(4, 4, 4, columns=4),
        LAYER + "attention.self.qkv.bias": vector(12),
        LAYER + "attention.output.dense.weight": hidden(4, columns=4),
        LAYER + "attention.output.dense.bias": vector(4),
        **norm(LAYER + "attention.output.LayerNorm"),
        LAYER + "intermediate.dense.weight": hidden(6, columns=4),
        LAYER + "intermediate.dense.bias": vector(6),
        LAYER + "output.dense.weight": hidden(4, columns=6),
        LAYER + "output.dense.bias": vector(4),
        **norm(LAYER + "output.LayerNorm"),
        "cls.predictions.transform.dense.weight": hidden(4, columns=4),
        "cls.predictions.transform.dense.bias": vector(4),
        **norm("cls.predictions.transform.LayerNorm"),
        "cls.predictions.bias": vector(3)}
# 3 inputs, hidden layers of 6, 5 and 7, 2 outputs.
MLP = {"0.weight": table(6, 3), "0.bias": vector(6), "2.weight": hidden(5, columns=6), "2.bias": vector(5),
       "4.weight": hidden(7, columns=5), "4.bias": vector(7), "6.weight": table(2, 7), "6.bias": vector(2)}
MODELS = {"gpt2": GPT2, "llama": LLAMA, "bert": BERT, "mlp": MLP}


def train_matrix(initial, gradients, parts):
    parameter, buffer = initial.clone(), torch.zeros_like(initial)
    for gradient in gradients:
        for part in zip(parameter.split(parts), gradient.split(parts), buffer.split(parts)):
            muon_step(*part, MATRIX_RATE, MOMENTUM, DECAY)
    return parameter, buffer, torch.zeros_like(initial)


def train_other(initial, gradients, decays):
    parameter = initial.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=RATE, betas=BETAS, eps=EPSILON,
                                  weight_decay=DECAY if decays else 0.0)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    state = optimizer.state[parameter]
    return parameter.detach(), state["exp_avg"], state["exp_avg_sq"]


def main(path):
    generator = torch.Generator().manual_seed(SEED)
    tensors = {}
    for name, shape in SHAPES.items():
        tensors[f"{name}.input"] = torch.randn(*shape, generator=generator)
        tensors[f"{name}.output"] = newton_schulz(tensors[f"{name}.input"].double()).float()
    for model, parameters in MODELS.items():
        for name, about in parameters.items():
            initial = torch.randn(*about["shape"], generator=generator)
            gradients = torch.randn(STEPS, *about["shape"], generator=generator)
            values = initial.double(), gradients.double()
            if about["parts"]:
                trained = train_matrix(*values, about["parts"])
            else:
                trained = train_other(*values, about["decays"])
            tensors[f"{model}.initial.{name}"] = initial
            tensors[f"{model}.gradients.{name}"] = gradients
            for kind, value in zip(("final", "exp_avg", "exp_avg_sq"), trained):
                tensors[f"{model}.{kind}.{name}"] = value.float()
    golden.write_safetensors(path, tensors, {
        "steps": str(STEPS), "learningRate": str(RATE), "matrixLearningRate": str(MATRIX_RATE),
        "matrixMomentum": str(MOMENTUM), "weightDecay": str(DECAY), "beta1": str(BETAS[0]),
        "beta2": str(BETAS[1]), "epsilon": str(EPSILON), "torch": torch.__version__})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
