#!/usr/bin/env python3
"""Data-parallel training with PyTorch on the CPU: a small network learns a made-up function.

    torchrun --nproc-per-node 4 examples/ddp.py
    lockstep run examples/torch-ddp.yaml

Rank 0 saves a checkpoint every --every steps, whole or not at all; a run that begins anew goes on
from there. The samples of a step follow from its number, so that the result is the same however
often it was interrupted; float64 keeps the order of sums out of it.
"""
import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 64


def batch_of(step, rank, world):
    """This rank's share of the samples of a step."""
    random = torch.Generator().manual_seed(1_000_003 * step + 7)
    inputs = torch.randn(GLOBAL_BATCH, 16, generator=random)
    targets = torch.sin(inputs[:, :4].sum(1, keepdim=True)) + 0.1 * inputs[:, 4:5]
    return inputs[rank::world], targets[rank::world]


def save(path, state):
    """Whoever reads it finds the old checkpoint or the new one."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def load(path, rank):
    """The checkpoint as rank 0 finds it, or None, on every rank."""
    found = [torch.load(path) if rank == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(found)
    return found[0]


def report(step, steps, loss):
    """One line of progress, if somebody asks for it."""
    path = os.environ.get("LOCKSTEP_PROGRESS_FILE")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"step": step, "steps": steps, "loss": loss,
                                   "samples": step * GLOBAL_BATCH}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--checkpoint", help="the file of the checkpoint",
                        default=os.environ.get("LOCKSTEP_CHECKPOINT_PATH", "checkpoints") + "/ddp.pt")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    state = load(options.checkpoint, rank)
    if state:
        model.load_state_dict(state["model"])
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=3e-3)
    if state:
        optimizer.load_state_dict(state["optimizer"])
    first = state["step"] if state else 0
    if rank == 0:
        print(f"{world} ranks begin after step {first}", flush=True)

    for step in range(first + 1, options.steps + 1):
        inputs, targets = batch_of(step, rank, world)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            if step % options.every == 0 or step == options.steps:
                print(f"step {step} loss {mean.item():.9f}", flush=True)
                save(options.checkpoint, {"step": step, "model": model.state_dict(),
                                          "optimizer": optimizer.state_dict()})
            report(step, options.steps, mean.item())
    dist.barrier()
    # Delete the model before the group. The last owner of the group waits for the group's threads. If that were the
    # model, it would wait while it holds Python's lock, which such a thread may need to free a tensor: a deadlock.
    del parallel
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
