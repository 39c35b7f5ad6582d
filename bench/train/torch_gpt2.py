#!/usr/bin/env python3
"""The peer: GPT-2's architecture trained by PyTorch on the CPU, as a careful user would write it.

Prints one line of JSON: tokens/s over the timed steps (median step), and the settings. With
--ranks above 1 it is DistributedDataParallel over gloo on loopback, one process a rank.
"""
import argparse
import json
import os
import socket
import statistics
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 4), ("width", 128), ("heads", 4), ("context", 128),
                          ("vocabulary", 256), ("batch", 16), ("accumulate", 1), ("threads", 1),
                          ("ranks", 1), ("warmup", 3), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_model(options):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, time_, width = x.shape
            q, k, v = (part.view(batch, time_, self.heads, width // self.heads).transpose(1, 2)
                       for part in self.c_attn(self.ln_1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(batch, time_, width))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(options.vocabulary, options.width)
            self.wpe = nn.Embedding(options.context, options.width)
            self.blocks = nn.ModuleList(
                Block(options.width, options.heads) for _ in range(options.layers))
            self.ln_f = nn.LayerNorm(options.width)
            self.head = nn.Linear(options.width, options.vocabulary, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln_f(x))
            return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    torch.manual_seed(1)
    return Gpt()


def run(rank, options):
    import torch

    torch.set_num_threads(options.threads)
    if options.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    model = make_model(options)
    plain = model
    if options.ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=4, gradient_as_bucket_view=True)
    if options.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    data = torch.randint(options.vocabulary, (64, options.batch, options.context + 1))
    cast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16")
    seconds = []
    for step in range(options.warmup + options.steps):
        begin = time.perf_counter()
        for micro in range(options.accumulate):
            tokens = data[(step * options.accumulate + micro) % len(data)]
            with cast:
                loss = model(tokens[:, :-1], tokens[:, 1:]) / options.accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        step_seconds = statistics.median(seconds[options.warmup:])
        tokens = options.batch * options.context * options.accumulate * options.ranks
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}", "compile": options.compile,
            "precision": options.precision, "threads": options.threads, "ranks": options.ranks,
            "stepSeconds": step_seconds, "tokensPerSecond": tokens / step_seconds,
            "parameters": sum(p.numel() for p in plain.parameters())}), flush=True)
    if options.ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    options = parse()
    if options.ranks == 1:
        run(0, options)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options.port = probe.getsockname()[1]
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(run, args=(options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
