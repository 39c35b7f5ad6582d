#!/usr/bin/env python3
"""The PyTorch peer: trains GPT-2's architecture as a careful user would write it.

Prints one line of JSON: tokens/s over the timed steps (median step), and the settings. With --ranks
above 1, processes on the CPU, one per rank, use gloo on loopback: DistributedDataParallel, or with
--parallel fsdp FSDP2 (fully_shard of each block and of the model), which frees a block's parameters
after its forward; fsdp-kept keeps them until its backward (ZeRO-2).

--device cuda uses fused AdamW, in bf16 the attention that SDPA chooses (or that of --attention), autocast to bf16, and fp32
matrix products without TF32. Nothing within a step waits for the GPU: the gradient norm stays there
too. A micro-batch that does not fit is halved, and more of them are accumulated, until it fits.

--compile full (or --compile without a value) compiles the whole model with torch.compile. --compile
layers compiles the head and one layer, whose code serves all layers: much faster for many layers.

With --turns it prints a line of JSON when it is warm. Then it runs the timed steps once for each
line on stdin, and answers each with a line of JSON. Between turns it keeps only the parameters and
the optimizer state on the GPU.

With --tokens (u16 token ids), a file of ranks x batch x accumulate x context + 1 tokens, each step sees
the whole file. --weights-out writes the initial parameters as safetensors under Hugging Face's names,
so that another program can start from them. --curve adds the loss of every step, warm-up included, over all
ranks.
"""
import argparse
import array
import contextlib
import json
import os
import socket
import statistics
import struct
import sys
import time

BEGIN = time.perf_counter()
PRESETS = {"tiny": (2, 32, 2, 16, 256), "kjv": (4, 128, 4, 128, 256),
           "gpt2-124m": (12, 768, 12, 1024, 50257), "gpt2-350m": (24, 1024, 16, 1024, 50257),
           "gpt2-774m": (36, 1280, 20, 1024, 50257), "gpt2-1.5b": (48, 1600, 25, 1024, 50257)}
DIMENSIONS = ("layers", "width", "heads", "context", "vocabulary")
TILE = 64  # the token embedding's rows are padded to a multiple of this, for the matrix units


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="kjv")
    for name in DIMENSIONS:
        parser.add_argument(f"--{name}", type=int)
    for name, default in (("batch", 16), ("accumulate", 1), ("threads", 1), ("ranks", 1), ("warmup", 3),
                          ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", nargs="?", choices=("", "full", "layers"), const="full", default="")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--tokens", default="")
    parser.add_argument("--weights-out", default="")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--parallel", choices=("ddp", "fsdp", "fsdp-kept"), default="ddp")
    parser.add_argument("--bucket-mb", type=int, default=4, help="of DistributedDataParallel")
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    parser.add_argument("--attention", choices=("any", "flash", "cudnn"), default="any")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, value in zip(DIMENSIONS, PRESETS[options.preset]):
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


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
            rows = options.vocabulary
            if rows >= 4096:
                rows = (rows + TILE - 1) // TILE * TILE
            self.wte = nn.Embedding(rows, options.width)
            self.wpe = nn.Embedding(options.context, options.width)
            self.blocks = nn.ModuleList(
                Block(options.width, options.heads) for _ in range(options.layers))
            self.ln_f = nn.LayerNorm(options.width)
            self.head = nn.Linear(options.width, rows, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.loss(x, targets)

        def loss(self, x, targets):
            logits = self.head(self.ln_f(x))
            if options.tokens:  # excludes padding, which speed measurements may include
                logits = logits[..., : options.vocabulary]
            return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    torch.manual_seed(1)
    with on_gpu(options):
        model = Gpt()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def on_gpu(options):
    """Returns a context that creates tensors on the GPU, if used: faster for large models."""
    import torch
    return torch.device("cuda") if options.device == "cuda" else contextlib.nullcontext()


def hugging_face_tensors(model, options):
    """Yields name and tensor as GPT2LMHeadModel stores them: its Conv1D holds [in, out]."""
    yield "wte.weight", model.wte.weight[: options.vocabulary]
    yield "wpe.weight", model.wpe.weight
    for i, block in enumerate(model.blocks):
        for ours, theirs in (("c_attn", "attn.c_attn"), ("c_proj", "attn.c_proj"), ("c_fc", "mlp.c_fc"),
                             ("mlp_proj", "mlp.c_proj")):
            linear = getattr(block, ours)
            yield f"h.{i}.{theirs}.weight", linear.weight.t()
            yield f"h.{i}.{theirs}.bias", linear.bias
        for norm in ("ln_1", "ln_2"):
            yield f"h.{i}.{norm}.weight", getattr(block, norm).weight
            yield f"h.{i}.{norm}.bias", getattr(block, norm).bias
    yield "ln_f.weight", model.ln_f.weight
    yield "ln_f.bias", model.ln_f.bias


def write_weights(model, options):
    """Writes safetensors: the header's length in 8 bytes, the header as JSON, the values."""
    header, values, at = {}, [], 0
    for name, tensor in hugging_face_tensors(model, options):
        data = tensor.detach().contiguous().cpu().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        values.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(options.weights_out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in values:
            file.write(data)


def load_data(options):
    """Returns tokens [sequences, context + 1]: the rank's part of the file, or random ones for some steps."""
    import torch

    rows = options.batch * options.accumulate
    if not options.tokens:
        return torch.randint(options.vocabulary, (max(64, rows), options.context + 1))
    ids = array.array("H")
    with open(options.tokens, "rb") as file:
        ids.frombytes(file.read())
    ids = torch.tensor(ids, dtype=torch.int64)
    expected = options.ranks * rows * options.context + 1
    if len(ids) != expected:
        raise SystemExit(f"--tokens: {expected} tokens expected, got {len(ids)}")
    return ids.unfold(0, options.context + 1, options.context)[options.rank::options.ranks]


def make_optimizer(model, options):
    """Returns AdamW with decay of matrices and embeddings only, as GPT-2 is trained."""
    import torch

    groups = [{"params": [p for p in model.parameters() if (p.dim() == 2) == is_matrix],
               "weight_decay": 0.1 if is_matrix else 0.0} for is_matrix in (True, False)]
    return torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.95), eps=1e-8,
                             **{options.optimizer: True})


def distribute(model, options):
    """Returns the model with its parameters or gradients shared by the ranks."""
    import torch

    if options.parallel == "ddp":
        return torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(options.device, (options.ranks,))
    is_freed = options.parallel == "fsdp"
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=is_freed)
    return fully_shard(model, mesh=mesh, reshard_after_forward=is_freed)


def mean_over_ranks(losses, options):
    import torch

    values = torch.tensor(losses, dtype=torch.float64)
    if options.ranks > 1:
        torch.distributed.all_reduce(values)
    return (values / options.ranks).tolist()


def one_attention(options):
    """Returns a context that rules out any attention but the one that was asked for, on a GPU in bf16."""
    if options.device != "cuda" or options.precision != "bf16" or options.attention == "any":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(SDPBackend.FLASH_ATTENTION if options.attention == "flash" else SDPBackend.CUDNN_ATTENTION)


class Training:
    def __init__(self, options):
        import torch

        self.options = options
        plain = make_model(options)
        if options.weights_out:
            write_weights(plain, options)
        self.plain = plain.to(options.device)
        self.model = self.plain
        if options.compile == "layers":
            for block in self.plain.blocks:
                block.compile()
            self.plain.loss = torch.compile(self.plain.loss)
        if options.ranks > 1:
            self.model = distribute(self.plain, options)
        if options.compile == "full":
            self.model = torch.compile(self.model)
        self.optimizer = make_optimizer(self.plain, options)
        self.cast = torch.autocast(options.device, dtype=torch.bfloat16,
                                   enabled=options.precision == "bf16")

    def step(self, rows):
        import torch

        options = self.options
        losses = []
        for micro in rows.split(options.batch):
            with self.cast, one_attention(options):
                loss = self.model(micro[:, :-1], micro[:, 1:]) / options.accumulate
            loss.backward()
            losses.append(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.plain.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(sum(losses))  # waits for the GPU

    def load(self):
        self.data = load_data(self.options)
        if self.options.device == "cuda":
            self.data = self.data.pin_memory()
        self.steps_done = 0

    def run(self, steps):
        """Runs the next steps. Returns the seconds and the loss of each."""
        options = self.options
        count = options.batch * options.accumulate
        seconds, losses = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            first = self.steps_done * count % max(1, len(self.data) - count + 1)
            rows = self.data[first: first + count].to(options.device, non_blocking=True)
            losses.append(self.step(rows))
            seconds.append(time.perf_counter() - begin)
            if self.steps_done == 0:
                self.first_step_seconds = time.perf_counter() - BEGIN
            self.steps_done += 1
        return seconds, losses

    def report(self, seconds, losses):
        import torch

        options = self.options
        step = statistics.median(seconds)
        tokens = options.batch * options.context * options.accumulate * options.ranks
        values = {
            "peer": f"PyTorch {torch.__version__}", "compile": options.compile, "device": options.device,
            "precision": options.precision, "threads": options.threads, "ranks": options.ranks,
            "batch": options.batch, "accumulate": options.accumulate, "context": options.context,
            "stepSeconds": step, "tokensPerSecond": tokens / step,
            "firstStepSeconds": self.first_step_seconds,
            "parameters": sum(p.numel() for p in self.plain.parameters()),
            "parallel": options.parallel, "optimizer": options.optimizer,
            "attention": options.attention, "bucketMb": options.bucket_mb}
        if options.device == "cuda":
            values["name"] = torch.cuda.get_device_name()
            values["memoryBytes"] = torch.cuda.max_memory_allocated()
        if options.curve:
            values["losses"] = losses
        return values


def warm_training(options):
    """Returns a warmed-up training and its losses.

    Halves the micro-batch until it fits in memory; raises if an odd one does not fit.
    """
    import torch

    while True:
        try:
            training = Training(options)
            training.load()
            return training, training.run(options.warmup)[1]
        except torch.cuda.OutOfMemoryError:
            if options.batch % 2 != 0:
                raise
        training = None
        torch.cuda.empty_cache()
        options.batch //= 2
        options.accumulate *= 2


def take_turns(training):
    """Runs a turn per line on stdin. Each begins with two untimed steps, which allocate memory."""
    import torch

    options = training.options
    print(json.dumps({"ready": True, "batch": options.batch, "firstStepSeconds": training.first_step_seconds}),
          flush=True)
    while True:
        if options.device == "cuda":
            torch.cuda.empty_cache()
        if not sys.stdin.readline():
            return
        training.run(2)
        print(json.dumps(training.report(*training.run(options.steps))), flush=True)


def run(rank, options):
    import torch

    options.rank = rank
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    training, losses = warm_training(options)
    if options.turns:
        take_turns(training)
        return
    seconds, later = training.run(options.steps)
    losses = mean_over_ranks(losses + later, options)
    if rank == 0:
        print(json.dumps(training.report(seconds, losses)), flush=True)
    if options.ranks > 1:
        torch.distributed.barrier()
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
