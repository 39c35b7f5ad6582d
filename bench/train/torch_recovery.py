#!/usr/bin/env python3
"""The PyTorch peer of recovery.py, which starts it with torchrun, a process for each rank.

Trains GPT-2's architecture with DistributedDataParallel and gloo on the CPU. Every --every steps it saves with
torch.distributed.checkpoint, in the background (async_save). Training waits only for the copy of the states, and for
an earlier save that is not complete. A new process resumes from the newest complete checkpoint. The samples of a step
follow from its number.

Rank 0 appends lines of JSON to --progress: "resumed" with the step of its states once it has them, "step" with its loss
and seconds after each step, and "sha256" of the parameters at the end.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import torch_gpt2

KEEP = 2


def path_of(folder, step):
    return folder / f"step-{step:09d}"


def complete(folder):
    """Returns the steps of the complete checkpoints, in order. The metadata of a checkpoint is written last."""
    return sorted(int(file.parent.name.removeprefix("step-")) for file in folder.glob("step-*/.metadata"))


class Checkpoints:
    """The checkpoints of a training. All ranks call the methods, in the same order."""

    def __init__(self, folder, training):
        self.folder, self.training = folder, training
        self.group = dist.new_group(backend="gloo")  # a save communicates while training does
        self.pending = None

    def states(self):
        model, optimizer = get_state_dict(self.training.plain, self.training.optimizer)
        return {"model": model, "optimizer": optimizer}

    def resume(self):
        """Loads the newest complete checkpoint. Returns its step, or 0 if none is complete."""
        found = [(complete(self.folder) or [0])[-1] if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found)
        if found[0]:
            states = self.states()
            dcp.load(states, checkpoint_id=path_of(self.folder, found[0]))
            set_state_dict(self.training.plain, self.training.optimizer, model_state_dict=states["model"],
                           optim_state_dict=states["optimizer"])
        return found[0]

    def save(self, step):
        self.finish()
        self.pending = dcp.async_save(self.states(), checkpoint_id=path_of(self.folder, step), process_group=self.group)
        if dist.get_rank() == 0:
            self.pending.add_done_callback(self.remove_old)

    def remove_old(self, _):
        """Runs in the thread that saved."""
        for step in complete(self.folder)[:-KEEP]:
            shutil.rmtree(path_of(self.folder, step), ignore_errors=True)

    def finish(self):
        if self.pending:
            self.pending.result()
            self.pending = None


def samples_of(data, step, options):
    """Returns this rank's samples of a step: tokens [samples, context + 1]."""
    draw = torch.Generator().manual_seed(step)
    firsts = torch.randint(len(data) - options.context, (options.batch * options.ranks,), generator=draw)
    mine = firsts[options.rank::options.ranks]
    return torch.stack([data[first:first + options.context + 1] for first in mine]).long()


def digest(model):
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def train(options, settings, note):
    training = torch_gpt2.Training(settings)
    data = torch.frombuffer(bytearray(pathlib.Path(options.text).read_bytes()), dtype=torch.uint8)
    checkpoints = Checkpoints(pathlib.Path(options.checkpoints), training)
    resumed = checkpoints.resume()
    note(resumed=resumed)
    for step in range(resumed + 1, options.steps + 1):
        begin = time.perf_counter()
        loss = training.step(samples_of(data, step, settings))
        note(step=step, loss=loss, seconds=time.perf_counter() - begin)
        if step % options.every == 0 or step == options.steps:
            checkpoints.save(step)
    checkpoints.finish()
    note(sha256=digest(training.plain))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("text", "progress", "checkpoints"):
        parser.add_argument(f"--{name}", required=True)
    for name, text in (("steps", "of the job"), ("every", "steps between saves"), ("batch", "samples of all ranks")):
        parser.add_argument(f"--{name}", type=int, required=True, help=text)
    return parser.parse_known_args()


def main():
    options, model = parse()
    settings = torch_gpt2.parse(model)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    settings.rank, settings.ranks = dist.get_rank(), dist.get_world_size()
    settings.batch = options.batch // settings.ranks
    progress = os.open(options.progress, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**fields):
        if settings.rank == 0:
            os.write(progress, (json.dumps(fields) + "\n").encode())

    train(options, settings, note)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
