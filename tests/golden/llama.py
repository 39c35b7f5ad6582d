"""A small Llama in plain PyTorch. It computes what LlamaForCausalLM does (transformers,
models/llama/modeling_llama.py and modeling_rope_utils.py), from weights under the same names.
"""
import math

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, CONTEXT, VOCABULARY = 2, 32, 4, 2, 24, 8, 17
EPSILON = 1e-5
# A head has four frequencies: the first stays, two are mixed and the last is slowed down.
ROPE = dict(base=100.0, factor=4.0, low=1.0, high=4.0, original=64)
METADATA = {"family": "llama", "layers": LAYERS, "width": WIDTH, "heads": HEADS,
            "kvHeads": KV_HEADS, "hiddenWidth": HIDDEN, "context": CONTEXT,
            "vocabulary": VOCABULARY, "normEpsilon": EPSILON, "ropeBase": ROPE["base"],
            "ropeFactor": ROPE["factor"], "ropeLow": ROPE["low"], "ropeHigh": ROPE["high"],
            "ropeOriginal": ROPE["original"]}


def initial_weights(generator, tied):
    """Returns weights larger than usual, so that every path has a gradient worth comparing."""
    def normal(*dims):
        return torch.randn(*dims, generator=generator, dtype=torch.float64)

    kv_width = WIDTH // HEADS * KV_HEADS
    weights = {"model.embed_tokens.weight": 0.3 * normal(VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights[prefix + "input_layernorm.weight"] = 1 + 0.1 * normal(WIDTH)
        for name, out, into in [("self_attn.q_proj", WIDTH, WIDTH),
                                ("self_attn.k_proj", kv_width, WIDTH),
                                ("self_attn.v_proj", kv_width, WIDTH),
                                ("self_attn.o_proj", WIDTH, WIDTH)]:
            weights[prefix + name + ".weight"] = 0.2 * normal(out, into)
        weights[prefix + "post_attention_layernorm.weight"] = 1 + 0.1 * normal(WIDTH)
        for name, out, into in [("mlp.gate_proj", HIDDEN, WIDTH), ("mlp.up_proj", HIDDEN, WIDTH),
                                ("mlp.down_proj", WIDTH, HIDDEN)]:
            weights[prefix + name + ".weight"] = 0.2 * normal(out, into)
    weights["model.norm.weight"] = 1 + 0.1 * normal(WIDTH)
    if not tied:
        weights["lm_head.weight"] = 0.3 * normal(VOCABULARY, WIDTH)
    return weights


def frequencies():
    """Returns the frequencies of rope_scaling with type "llama3"."""
    head_dim = WIDTH // HEADS
    scaled = []
    for i in range(0, head_dim, 2):
        frequency = ROPE["base"] ** (-i / head_dim)
        wavelength = 2 * math.pi / frequency
        if wavelength > ROPE["original"] / ROPE["low"]:
            frequency /= ROPE["factor"]
        elif wavelength >= ROPE["original"] / ROPE["high"]:
            smooth = (ROPE["original"] / wavelength - ROPE["low"]) / (ROPE["high"] - ROPE["low"])
            frequency = (1 - smooth) * frequency / ROPE["factor"] + smooth * frequency
        scaled.append(frequency)
    return torch.tensor(scaled, dtype=torch.float64)


def rotated(x):
    """Rotates x [batch, heads, length, head_dim], each position by its angles."""
    angles = torch.outer(torch.arange(x.size(2), dtype=torch.float64), frequencies())
    angles = torch.cat((angles, angles), dim=-1)
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * angles.cos() + turned * angles.sin()


def roundings(batch):
    """Terms of the sums on the longest path to a gradient: two norms, the products for q, k, v, scores,
    values, output, gate and down of each layer, the last norm, head and softmax; all again in backward, and
    the rows of the batch.
    """
    layer = 5 * WIDTH + WIDTH // HEADS + 2 * CONTEXT + HIDDEN
    return 2 * (LAYERS * layer + 2 * WIDTH + VOCABULARY) + batch * CONTEXT


def loss_of(w, tokens, targets):
    """Returns the mean cross-entropy. Without lm_head.weight the embedding is the head."""
    def norm(name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * w[name + ".weight"]

    def heads(name, x, count):
        flat = F.linear(x, w[name + ".weight"])
        return flat.view(*x.shape[:2], count, WIDTH // HEADS).transpose(1, 2)

    batch, length = tokens.shape
    x = F.embedding(tokens, w["model.embed_tokens.weight"])
    future = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        h = norm(prefix + "input_layernorm", x)
        q = rotated(heads(prefix + "self_attn.q_proj", h, HEADS))
        k = rotated(heads(prefix + "self_attn.k_proj", h, KV_HEADS))
        v = heads(prefix + "self_attn.v_proj", h, KV_HEADS)
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        attention = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        attention = attention.transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + F.linear(attention, w[prefix + "self_attn.o_proj.weight"])
        h = norm(prefix + "post_attention_layernorm", x)
        hidden = F.silu(F.linear(h, w[prefix + "mlp.gate_proj.weight"]))
        hidden = hidden * F.linear(h, w[prefix + "mlp.up_proj.weight"])
        x = x + F.linear(hidden, w[prefix + "mlp.down_proj.weight"])
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    logits = F.linear(norm("model.norm", x), head)
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))
