"""A small BERT in plain PyTorch. It computes what BertForMaskedLM does (transformers,
models/bert/modeling_bert.py), from weights under the same names, for sequences of token type 0.
"""
import math

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT, VOCABULARY, TYPES = 2, 32, 4, 24, 8, 17, 2
EPSILON = 1e-12
MASKED = 2  # predicted tokens of each sequence
METADATA = {"family": "bert", "layers": LAYERS, "width": WIDTH, "heads": HEADS,
            "hiddenWidth": HIDDEN, "context": CONTEXT, "vocabulary": VOCABULARY,
            "normEpsilon": EPSILON}


def initial_weights(generator, tied):
    """Returns weights larger than usual, so that every path has a gradient worth comparing."""
    def normal(*dims):
        return torch.randn(*dims, generator=generator, dtype=torch.float64)

    weights = {}

    def add_norm(name):
        weights[name + ".weight"] = 1 + 0.1 * normal(WIDTH)
        weights[name + ".bias"] = 0.1 * normal(WIDTH)

    def add_linear(name, out, into):
        weights[name + ".weight"] = 0.2 * normal(out, into)
        weights[name + ".bias"] = 0.1 * normal(out)

    for name, rows in [("word", VOCABULARY), ("position", CONTEXT), ("token_type", TYPES)]:
        weights[f"bert.embeddings.{name}_embeddings.weight"] = 0.3 * normal(rows, WIDTH)
    add_norm("bert.embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix = f"bert.encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            add_linear(prefix + "attention.self." + name, WIDTH, WIDTH)
        add_linear(prefix + "attention.output.dense", WIDTH, WIDTH)
        add_norm(prefix + "attention.output.LayerNorm")
        add_linear(prefix + "intermediate.dense", HIDDEN, WIDTH)
        add_linear(prefix + "output.dense", WIDTH, HIDDEN)
        add_norm(prefix + "output.LayerNorm")
    add_linear("cls.predictions.transform.dense", WIDTH, WIDTH)
    add_norm("cls.predictions.transform.LayerNorm")
    weights["cls.predictions.bias"] = 0.1 * normal(VOCABULARY)
    if not tied:
        weights["cls.predictions.decoder.weight"] = 0.3 * normal(VOCABULARY, WIDTH)
    return weights


def masked_batches(generator, *dims):
    """Returns tokens and targets [dims, CONTEXT]. Targets are -1 but for MASKED in each sequence, whose
    token is then the last of the vocabulary.
    """
    text = torch.randint(VOCABULARY - 1, (*dims, CONTEXT), generator=generator)
    chosen = torch.rand(*dims, CONTEXT, generator=generator).argsort(-1) < MASKED
    return text.masked_fill(chosen, VOCABULARY - 1), text.masked_fill(~chosen, -1)


def roundings(batch):
    """Terms of the sums on the longest path to a gradient: two norms, the products for q, k, v, scores,
    values, output and both of the MLP of each layer, the embedding's norm, the head's product and norm, the
    head and softmax; all again in backward, and the rows of the batch.
    """
    layer = 5 * WIDTH + WIDTH // HEADS + 2 * CONTEXT + HIDDEN
    return 2 * (LAYERS * layer + 4 * WIDTH + VOCABULARY) + batch * CONTEXT


def loss_of(w, tokens, targets):
    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], EPSILON)

    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def heads(name, x):
        return linear(name, x).view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

    batch, length = tokens.shape
    words = w["bert.embeddings.word_embeddings.weight"]
    x = F.embedding(tokens, words) + w["bert.embeddings.position_embeddings.weight"][:length]
    x = x + w["bert.embeddings.token_type_embeddings.weight"][0]
    x = norm("bert.embeddings.LayerNorm", x)
    for layer in range(LAYERS):
        prefix = f"bert.encoder.layer.{layer}."
        q, k, v = (heads(prefix + "attention.self." + name, x) for name in ("query", "key", "value"))
        attention = ((q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)).softmax(-1) @ v
        attention = attention.transpose(1, 2).reshape(batch, length, WIDTH)
        x = norm(prefix + "attention.output.LayerNorm",
                 x + linear(prefix + "attention.output.dense", attention))
        hidden = F.gelu(linear(prefix + "intermediate.dense", x))
        x = norm(prefix + "output.LayerNorm", x + linear(prefix + "output.dense", hidden))
    x = F.gelu(linear("cls.predictions.transform.dense", x))
    x = norm("cls.predictions.transform.LayerNorm", x)
    head = w.get("cls.predictions.decoder.weight", words)
    logits = F.linear(x, head, w["cls.predictions.bias"])
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1), ignore_index=-1)
