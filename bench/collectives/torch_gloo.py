#!/usr/bin/env python3
"""Runs the ranks of PyTorch's Gloo; measure.py gives them their turns. turns.h has the protocol."""
import argparse
import json
import os
import socket
import statistics
import sys
import time


def input_values(rank, count, start=0):
    """Returns input_value() of bench/comm/input_values.cc for `count` elements from `start` on."""
    mask = 0xffffffff
    x = (torch.arange(start, start + count) * 0x9e3779b1 + (rank + 1) * 0x85ebca77) & mask
    x = ((x ^ (x >> 15)) * 0x2c1b3c6d) & mask
    x = ((x ^ (x >> 12)) * 0x297a2d39) & mask
    return (x ^ (x >> 15)) & 127


class Turn:
    def __init__(self, operation, size, rank, ranks):
        self.operation, self.rank, self.ranks = operation, rank, ranks
        blocks = ranks if operation in ("all-gather", "reduce-scatter", "all-to-all") else 1
        self.count = max(1, size // 4 // blocks)
        takes = ranks if operation in ("reduce-scatter", "all-to-all") else 1
        gives = ranks if operation in ("all-gather", "all-to-all") else 1
        self.input = torch.zeros(takes * self.count)
        self.output = torch.zeros(gives * self.count)

    def run(self, root):
        if self.operation == "all-reduce":
            dist.all_reduce(self.output)
        elif self.operation == "broadcast":
            dist.broadcast(self.output, root)
        elif self.operation == "all-gather":
            dist.all_gather_into_tensor(self.output, self.input)
        elif self.operation == "reduce-scatter":
            dist.reduce_scatter_tensor(self.output, self.input)
        else:
            dist.all_to_all_single(self.output, self.input)

    def wrong(self):
        in_place = self.operation in ("all-reduce", "broadcast")
        mine = self.output if in_place else self.input
        root = self.ranks - 1
        self.output.fill_(-1)  # no result contains it
        # Reductions sum zeros and ones, so that no sum is rounded.
        reduces = self.operation in ("all-reduce", "reduce-scatter")
        of = (lambda *what: input_values(*what) % 2) if reduces else input_values
        if self.operation != "broadcast" or self.rank == root:
            mine.copy_(of(self.rank, mine.numel()))
        self.run(root)
        own = self.rank * self.count
        if self.operation == "broadcast":
            expected = of(root, self.count)
        elif self.operation in ("all-gather", "all-to-all"):
            start = own if self.operation == "all-to-all" else 0
            expected = torch.cat([of(r, self.count, start) for r in range(self.ranks)])
        else:
            start = own if self.operation == "reduce-scatter" else 0
            expected = sum(of(r, self.count, start) for r in range(self.ranks))
        count = int((self.output != expected.float()).sum())
        self.input.zero_()
        self.output.zero_()
        return count

    def sample(self):
        operations = self.ranks if self.operation == "broadcast" else 1
        begin = time.perf_counter_ns()
        for root in range(operations):
            self.run(root)
        return (time.perf_counter_ns() - begin) / 1e3 / operations


def answer(words, rank, ranks):
    operation, size, times, check = words[0], int(words[1]), int(words[2]), words[3] == "1"
    if operation == "all-reduce-lor":
        return {"lacks": "torch.distributed has no logical OR reduction"}
    turn = Turn(operation, size, rank, ranks)
    wrong = turn.wrong() if check else 0
    for _ in range(max(2, times // 10)):
        turn.sample()
    us = sorted(turn.sample() for _ in range(times))
    return {"bytes": 4 * max(turn.input.numel(), turn.output.numel()), "wrong": wrong, "minUs": us[0], "p50Us": us[len(us) // 2], "p99Us": us[len(us) * 99 // 100],
            "meanUs": statistics.fmean(us)}


def serve(rank, options):
    if options.pin:
        os.sched_setaffinity(0, {rank % os.cpu_count()})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.folder}/torch", rank=rank,
                            world_size=options.ranks)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(options.socket)
    stream = connection.makefile("rw", encoding="utf-8")

    def say(document):
        stream.write(json.dumps(document) + "\n")
        stream.flush()

    say({"rank": rank, "size": options.ranks, "library": f"torch.distributed {torch.__version__}, gloo"})
    for line in stream:
        say(answer(line.split(), rank, options.ranks))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--pin", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    children = []
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            serve(rank, options)
            os._exit(0)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)


if __name__ == "__main__":
    import torch
    import torch.distributed as dist
    sys.exit(main())
