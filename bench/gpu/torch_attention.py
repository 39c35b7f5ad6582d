#!/usr/bin/env python3
"""Times PyTorch's causal attention: torch_attention.py [--device cpu|cuda] BxTxNHxHDxKVH ...

Prints one line of JSON for each kind (flash, cudnn; on the CPU PyTorch's default) and shape: median
seconds of forward and of backward, on a GPU by its own events, or why there are none. The type is
bf16; q, k and v are views of one packed tensor, as a GPT's first product leaves them.
"""
import argparse
import json
import statistics
import time

SAMPLES = 20


def kinds_of(device):
    """Returns, by kind, a context that rules out all others. Omits kinds that PyTorch lacks."""
    if device == "cpu":
        import contextlib
        return {"default": contextlib.nullcontext}
    from torch.nn.attention import SDPBackend, sdpa_kernel
    names = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
    return {kind: lambda backend=getattr(SDPBackend, name): sdpa_kernel(backend)
            for kind, name in names.items() if hasattr(SDPBackend, name)}


def measure(device, call):
    """Returns median seconds; waits for the end of each sample."""
    import torch

    seconds = []
    for i in range(SAMPLES + 3):  # the first three warm up
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            took = begin.elapsed_time(end) * 1e-3
        else:
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
        if i >= 3:
            seconds.append(took)
    return statistics.median(seconds)


def run(device, sizes):
    import torch
    import torch.nn.functional as F

    batch, length, heads, dim, kv_heads = sizes
    packed = torch.randn(batch, length, (heads + 2 * kv_heads) * dim, device=device, dtype=torch.bfloat16)
    q, k, v = (part.unflatten(2, (-1, dim)).transpose(1, 2).detach().requires_grad_()
               for part in packed.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=2))
    grouped = {"enable_gqa": True} if kv_heads != heads else {}

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)

    out = forward()
    dout = torch.randn_like(out)
    return {"forward": measure(device, forward),
            "backward": measure(device, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("shapes", nargs="+")
    options = parser.parse_args()
    for kind, alone in kinds_of(options.device).items():
        for shape in options.shapes:
            row = {"kind": kind, "shape": shape}
            try:
                with alone():
                    row.update(run(options.device, [int(size) for size in shape.split("x")]))
            except (AttributeError, RuntimeError, TypeError) as error:  # unsupported
                row["why"] = str(error).splitlines()[0]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
