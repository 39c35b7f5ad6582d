#!/usr/bin/env python3
"""PyTorch on a mesh: GPT-2's architecture, divided by tensors or into the stages of a pipeline.

Prints one line of JSON: tokens/s over the timed steps (median step), and the loss of every step, warm-up included.
Processes on the CPU, one per rank, use gloo on loopback. The weights are those that torch_gpt2.py draws.

--parallel tensor divides blocks (ColwiseParallel, RowwiseParallel), embedding and head (loss_parallel) with DTensor;
sequence divides the rows between them too (SequenceParallel). All others are schedules of
torch.distributed.pipelining: gpipe, 1f1b, interleaved (1F1B), interleaved-zero-bubble and zbv (zero-bubble), the last
three with two stages per rank. The embedding is tied to the head: where they are on different ranks, these add up the
gradients.

--tokens (u16 token ids) is a file of batch x context + 1 tokens; each step sees the whole file in micro-batches of
--micro sequences. --weights-out writes the initial parameters as safetensors under Hugging Face's names.
"""
import argparse
import json
import os
import socket
import statistics
import time

import mesh_formulas
import torch_gpt2

# --parallel -> the name of torch.distributed.pipelining's class, stages per rank, order of the stages
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1, "loop"),
    "1f1b": ("Schedule1F1B", 1, "loop"),
    "interleaved": ("ScheduleInterleaved1F1B", 2, "loop"),
    "interleaved-zero-bubble": ("ScheduleInterleavedZeroBubble", 2, "loop"),
    "zbv": ("ScheduleZBVZeroBubble", 2, "v"),
}
CLIP = 1.0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in torch_gpt2.DIMENSIONS:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--parallel", choices=("tensor", "sequence", *SCHEDULES), required=True)
    for name, default in (("ranks", 2), ("batch", 16), ("micro", 2), ("warmup", 3), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--weights-out", default="")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    parser.add_argument("--compile", choices=("", "layers"), default="")
    options = parser.parse_args()
    options.device, options.accumulate, options.threads = "cpu", options.batch // options.micro, 1
    return options


def local_stages(rank, ranks, per_rank, order):
    """Returns the stages of a rank: every `ranks`-th one, or in a V one from each end."""
    if order == "v":
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * turn for turn in range(per_rank)]


def layers_of(stage, stages, options):
    """Cuts the layers as Lockstep does: the stage with the head has fewer of them if the head costs more than one."""
    counts = mesh_formulas.part_layers(options, stages)
    begin = sum(counts[:stage])
    return range(begin, begin + counts[stage])


def parts(options):
    """Returns the classes of the model: Embedding, Block and Head, with torch_gpt2.py's names of parameters."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Embedding(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.wte, self.wpe = whole.wte, whole.wpe
            self.register_buffer("positions", torch.arange(options.context), persistent=False)

        def forward(self, tokens):
            return self.wte(tokens) + self.wpe(self.positions)

    class Block(nn.Module):
        """Serves any part of the heads: the rows of c_attn are sorted by head."""

        def __init__(self, whole):
            super().__init__()
            self.head_width = options.width // options.heads
            for name, module in whole.named_children():
                setattr(self, name, module)
            for parameter in self.c_attn.parameters():
                by_head = parameter.data.unflatten(0, (3, options.heads, self.head_width)).transpose(0, 1)
                parameter.data = by_head.reshape(parameter.shape).contiguous()

        def forward(self, x):
            qkv = self.c_attn(self.ln_1(x))
            q, k, v = qkv.unflatten(2, (-1, 3, self.head_width)).transpose(1, 2).unbind(3)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).flatten(2))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Head(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.ln_f, self.head = whole.ln_f, whole.head

        def forward(self, x):
            return self.head(self.ln_f(x))

    return Embedding, Block, Head


def chain(options, whole, layers, has_embedding=True, has_head=True):
    """Returns a module of some layers of a model, with the embedding before them and the head after them."""
    from torch import nn

    Embedding, Block, Head = parts(options)
    modules = [Embedding(whole)] if has_embedding else []
    modules += [Block(whole.blocks[layer]) for layer in layers]
    if options.compile:
        for module in modules[has_embedding:]:
            module.compile()
    return nn.Sequential(*modules, *([Head(whole)] if has_head else []))


def clip(groups, add_up=lambda squares: squares):
    """Clips the gradients of groups of parameters by the norm of all. `add_up` adds squares of other ranks."""
    import torch

    def whole(norm):
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    groups = [group for group in groups if group]
    norms = [whole(torch.nn.utils.get_total_norm([parameter.grad for parameter in group])) for group in groups]
    norm = add_up(torch.stack(norms).square().sum()).sqrt()
    for group in groups:
        torch.nn.utils.clip_grads_with_norm_(group, CLIP, norm)


def make_optimizer(groups, options):
    """Returns AdamW with decay of matrices and embeddings only. Parameters of one group are of one kind of tensor."""
    import torch

    split = [{"params": [p for p in group if (p.dim() == 2) == is_matrix], "weight_decay": 0.1 if is_matrix else 0.0}
             for group in groups for is_matrix in (True, False)]
    return torch.optim.AdamW([group for group in split if group["params"]], lr=options.rate, betas=(0.9, 0.95),
                             eps=1e-8, **{options.optimizer: True})


class TensorParallel:
    """Every rank has a part of each matrix. `is_sequence`: and a part of the rows between them."""

    def __init__(self, options, whole):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor

        self.options = options
        self.model = chain(options, whole, range(options.layers))
        self.divide(init_device_mesh("cpu", (options.ranks,)), options.parallel == "sequence")
        every = list(dict.fromkeys(self.model.parameters()))
        self.groups = [[p for p in every if isinstance(p, DTensor) == is_divided] for is_divided in (True, False)]
        self.optimizer = make_optimizer(self.groups, options)

    def divide(self, mesh, is_sequence):
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel,
                                                       parallelize_module)

        rows = Shard(1) if is_sequence else Replicate()
        column = ColwiseParallel(input_layouts=rows)
        row = RowwiseParallel(output_layouts=rows)
        norm = {"ln_1": SequenceParallel(), "ln_2": SequenceParallel()} if is_sequence else {}
        embedding, *blocks, head = self.model
        plan = {"wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows)}
        if is_sequence:
            plan["wpe"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0))
        parallelize_module(embedding, mesh, plan)
        for block in blocks:
            parallelize_module(block, mesh,
                               norm | {"c_attn": column, "c_proj": row, "c_fc": column, "mlp_proj": row})
        logits = ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(head, mesh, {"head": logits} | ({"ln_f": SequenceParallel()} if is_sequence else {}))
        head.head.weight = embedding.wte.weight

    def step(self, inputs, targets):
        import torch.nn.functional as F
        from torch.distributed.tensor.parallel import loss_parallel

        total = 0.0
        count = self.options.accumulate
        for tokens, expected in zip(inputs.chunk(count), targets.chunk(count)):
            with loss_parallel():
                logits = self.model(tokens)
                loss = F.cross_entropy(logits.flatten(0, 1), expected.flatten()) / count
                loss.backward()
            total += float(loss.detach())
        clip(self.groups)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total


class Pipeline:
    """Every rank has one stage or two. The first and the last rank are those of the embedding and the head."""

    def __init__(self, options, whole):
        import torch
        from torch.distributed import pipelining

        self.options = options
        name, per_rank, order = SCHEDULES[options.parallel]
        stages = options.ranks * per_rank
        mine = local_stages(options.rank, options.ranks, per_rank, order)
        modules = [chain(options, whole, layers_of(stage, stages, options), stage == 0, stage == stages - 1)
                   for stage in mine]
        built = [pipelining.PipelineStage(module, stage, stages, torch.device("cpu"))
                 for module, stage in zip(modules, mine)]
        self.is_first, self.is_last = 0 in mine, stages - 1 in mine
        # The mean over micro-batches is in the loss: scale_grads would scale a tied weight twice.
        self.schedule = getattr(pipelining, name)(built if per_rank > 1 else built[0], options.accumulate,
                                                  loss_fn=self.loss, scale_grads=False)
        self.parameters = list(dict.fromkeys(p for module in modules for p in module.parameters()))
        self.tied = whole.wte.weight
        self.ends = torch.distributed.new_group([0, options.ranks - 1])
        self.adds_tied = order == "loop" and (self.is_first or self.is_last)
        is_copy = order == "loop" and self.is_last
        self.counted = [p for p in self.parameters if not (is_copy and p is self.tied)]
        self.optimizer = make_optimizer([self.parameters], options)

    def loss(self, logits, targets):
        import torch.nn.functional as F

        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / self.options.accumulate

    def add_up(self, value):
        import torch

        torch.distributed.all_reduce(value)
        return value

    def clip(self):
        import torch

        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in self.counted])
        norm = self.add_up(norm.square()).sqrt()
        torch.nn.utils.clip_grads_with_norm_(self.parameters, CLIP, norm)

    def step(self, inputs, targets):
        import torch

        losses = []
        self.schedule.step(*([inputs] if self.is_first else []),
                           **({"target": targets, "losses": losses} if self.is_last else {}))
        if self.adds_tied:
            torch.distributed.all_reduce(self.tied.grad, group=self.ends)
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return sum(float(loss.detach()) for loss in losses)


def train(training, options):
    """Returns the seconds and the loss of each step; a loss is that of the rank that has it, else 0."""
    data = torch_gpt2.load_data(argparse.Namespace(**{**vars(options), "ranks": 1, "rank": 0, "batch": options.micro}))
    inputs, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    seconds, losses = [], []
    for _ in range(options.warmup + options.steps):
        begin = time.perf_counter()
        losses.append(training.step(inputs, targets))
        seconds.append(time.perf_counter() - begin)
    return seconds[options.warmup:], losses


def run(rank, options):
    import torch

    options.rank = rank
    torch.set_num_threads(options.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    whole = torch_gpt2.make_model(options)
    if options.weights_out and rank == 0:
        torch_gpt2.write_weights(whole, options)
    is_pipeline = options.parallel in SCHEDULES
    seconds, losses = train((Pipeline if is_pipeline else TensorParallel)(options, whole), options)
    losses = torch.tensor(losses, dtype=torch.float64)
    if is_pipeline:
        torch.distributed.all_reduce(losses)
    if rank == 0:
        step = statistics.median(seconds)
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}", "parallel": options.parallel, "ranks": options.ranks,
            "stepSeconds": step, "tokensPerSecond": options.batch * options.context / step,
            "losses": losses.tolist()}), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    options = parse()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options.port = probe.getsockname()[1]
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(run, args=(options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
