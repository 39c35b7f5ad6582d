#!/usr/bin/env python3
"""PyTorch's RPC doing what bench_rpc does: prints lines in the same form, without bounds.

    torch_rpc.py --path tcp|shm --servers N --sizes 1048576,... --small 8,... --keys 1000,... --iterations N

tcp restricts TensorPipe to its sockets, shm to shared memory for messages and process_vm_readv for tensors.
"""
import argparse
import multiprocessing
import os
import time

import torch
import torch.distributed.rpc as rpc

ROW_FLOATS = 16
TABLE_ROWS = 1 << 20
PARAMETERS = None
TABLE = None


def push(tensor):
    PARAMETERS[:tensor.numel()].copy_(tensor)


def pull(count):
    return PARAMETERS[:count]


def echo(tensor):
    return tensor


def push_rows(keys, rows):
    TABLE.index_add_(0, keys % TABLE_ROWS, rows)


def pull_rows(keys):
    return TABLE.index_select(0, keys % TABLE_ROWS)


def options(path):
    if path == "tcp":
        return rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    return rpc.TensorPipeRpcBackendOptions(_transports=["shm"], _channels=["cma", "basic"])


def join(rank, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    torch.set_num_threads(1)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=arguments.servers + 1, rpc_backend_options=options(arguments.path))


def serve(rank, arguments):
    global PARAMETERS, TABLE
    PARAMETERS = torch.ones(max(arguments.sizes) // 4)
    TABLE = torch.zeros(TABLE_ROWS, ROW_FLOATS)
    join(rank, arguments)
    rpc.shutdown()


def call_all(arguments, function, shares):
    futures = [rpc.rpc_async(f"rank{i + 1}", function, args=share) for i, share in enumerate(shares)]
    return [future.wait() for future in futures]


def cpu_seconds(arguments):
    """Of this process and the servers: a process's clock has its pid in its number."""
    return time.process_time() + sum(time.clock_gettime(~pid << 3 | 2) for pid in arguments.pids)


def measure(arguments, operation, size, work):
    work()
    work()
    samples, costs = [], []
    for _ in range(arguments.iterations or max(9, min(1000, (1 << 29) // (size + 500_000)))):
        cost, begin = cpu_seconds(arguments), time.perf_counter()
        work()
        samples.append((time.perf_counter() - begin) * 1e6)
        costs.append((cpu_seconds(arguments) - cost) * 1e6)
    samples.sort()
    costs.sort()
    last = samples[min(int(0.99 * len(samples)), len(samples) - 1)]
    print(f"torch-{arguments.path} {arguments.servers} {operation} {size} "
          f"{samples[len(samples) // 2]:.1f} {last:.1f} {costs[len(costs) // 2]:.1f} 0 0 0 0", flush=True)


def echo_rate(arguments, size):
    tensor = torch.ones(max(size // 4, 1))
    under_way, count = [], 100 if arguments.iterations else 4000
    begin = time.perf_counter()
    for i in range(count):
        if len(under_way) == 64 * arguments.servers:
            under_way.pop(0).wait()
        under_way.append(rpc.rpc_async(f"rank{i % arguments.servers + 1}", echo, args=(tensor,)))
    for future in under_way:
        future.wait()
    print(f"torch-{arguments.path} {arguments.servers} echo_rate {size} {count / (time.perf_counter() - begin):.0f}", flush=True)


def run(arguments):
    servers = arguments.servers
    for size in arguments.sizes:
        source, target = torch.ones(size // 4), torch.zeros(size // 4)
        parts, places = source.chunk(servers), target.chunk(servers)

        def pull_all():
            for place, got in zip(places, call_all(arguments, pull, [(len(part),) for part in parts])):
                place.copy_(got)

        measure(arguments, "push", size, lambda: call_all(arguments, push, [(part,) for part in parts]))
        measure(arguments, "pull", size, pull_all)
    for size in arguments.small:
        tensor = torch.ones(max(size // 4, 1))
        measure(arguments, "echo", size, lambda: call_all(arguments, echo, [(tensor,)] * servers))
        echo_rate(arguments, size)
    for keys in arguments.keys:
        names, rows = torch.arange(keys) * 7, torch.ones(keys, ROW_FLOATS)
        shares = list(zip(names.chunk(servers), rows.chunk(servers)))
        measure(arguments, "push_rows", keys * (8 + 4 * ROW_FLOATS), lambda: call_all(arguments, push_rows, shares))
        measure(arguments, "pull_rows", keys * 4 * ROW_FLOATS,
                lambda: call_all(arguments, pull_rows, [(share[0],) for share in shares]))


def main():
    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", choices=("tcp", "shm"), default="tcp")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--sizes", type=numbers, default=[1 << 20, 1 << 24])
    parser.add_argument("--small", type=numbers, default=[8, 4096])
    parser.add_argument("--keys", type=numbers, default=[1000, 100_000])
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--port", type=int, default=29777)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=serve, args=(rank, arguments)) for rank in range(1, arguments.servers + 1)]
    for process in processes:
        process.start()
    arguments.pids = [process.pid for process in processes]
    join(0, arguments)
    run(arguments)
    rpc.shutdown()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
