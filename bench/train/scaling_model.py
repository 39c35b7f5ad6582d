"""Computes how long a step takes on N ranks, from the times of one process and the speed of the network.

A step of one process takes m (F + B) + U + R: F and B are the forward and the backward of a micro-batch, U is the
update, and R the rest. N ranks divide this as their strategy does:

| strategy | m | F, B | U |
|---|---|---|---|
| data | 1/N | all | all; with sharding 1/N |
| tensor | all | 1/N | the part of the parameters that a rank has |
| pipeline | all | the layers of the stage, and the head as common/layout weighs it | likewise |

A pipeline with stages of t[s] = F + B takes m max(t) + (sum of the other t) / chunks: with equal stages that is the
idle share of docs/parallelism.md. With zerobubble the other stages count F alone: B and W there are halves of a
backward, so F + B - W = F. PipeDream takes m max(t), without the steps in which it fills and empties.

Communication is the messages' latency plus the bytes that the busiest rank sends, over the bandwidth for such messages.
This part of it is exposed:

- gradients over data: max(0, all of it - B), because the last backward hides it; with `gradients` and `parameters` in
  each micro-batch;
- parameters after a sharded update: max(0, all of it - F);
- gathers of `parameters`: max(0, those of forward - F), those of backward together with the gradients, and all of the
  first block's;
- sums within layers, of a tied embedding, of norms and losses: all of it;
- messages between stages: those of the first and the last micro-batch, two for each boundary of parts.

The model ignores: caches, products that are slower because they are smaller, what tensor parallelism repeats (norms,
residuals), PipeDream's copies of parameters, and memory or cores that ranks share.
"""
import collections
import math

import mesh_formulas
import sharding_formulas
from mesh_formulas import Mesh
from sharding_formulas import FLOAT

SMALL_SUMS = 2  # of a step: the norm and the loss
# All-gathers and reduce-scatters of a layer with sequence parallelism, forward and backward together.
LAYER_GATHERS, LAYER_SCATTERS = 6, 4

# kind: "data", "tensor" or "pipeline". sharding: of data, a mode of sharding_modes; rows: sequence parallelism.
Strategy = collections.namedtuple("Strategy", "name kind sharding rows schedule chunks is_tied",
                                  defaults=("none", False, "1f1b", 1, True))
# Seconds of one process: of a micro-batch, and of a step.
Times = collections.namedtuple("Times", "forward backward update rest")
# Seconds of a step: total = busiest rank's computation + idle + exposed. waits: the share of all ranks' time.
Predicted = collections.namedtuple("Predicted", "total exposed idle waits")


class Network:
    """Latencies and bandwidths by operation, measured between `ranks` ranks: operation -> bytes -> seconds."""

    def __init__(self, ranks, seconds):
        self.ranks, self.measured = ranks, seconds
        self.latency = {name: min(table.values()) for name, table in seconds.items()}  # of one message

    def bandwidth(self, operation, bytes_):
        """Returns the bytes/s that a rank sends with, for messages of about this size."""
        table = self.measured[operation]
        nearest = min(table, key=lambda size: abs(math.log(size / bytes_)))
        steps, share = work_of(operation, self.ranks)
        left = table[nearest] - steps * self.latency[operation]
        return share * nearest / max(left, table[nearest] / 10)

    def seconds(self, operation, ranks, bytes_, messages=1):
        """Returns the seconds of an operation with `bytes_` in all, sent in a number of messages."""
        if ranks == 1 or bytes_ == 0:
            return 0.0
        steps, share = work_of(operation, ranks)
        speed = self.bandwidth(operation, bytes_ / messages)
        return messages * steps * self.latency[operation] + share * bytes_ / speed

    def small_sum(self, ranks):
        """Returns the seconds of a sum of few bytes, which ranks send directly to each other."""
        return self.latency["all_reduce"] * ranks / 2 if ranks > 1 else 0.0


def work_of(operation, ranks):
    """Returns the steps of an operation as a ring, and the part of its bytes that a rank sends."""
    if operation == "send":
        return 1, 1
    times = 2 if operation == "all_reduce" else 1
    return times * (ranks - 1), times * (ranks - 1) / ranks


def mesh_of(strategy, ranks, sizes):
    sizes = sizes._replace(is_tied=strategy.is_tied)
    axes = {"data": (1, ranks, 1), "tensor": (1, 1, ranks), "pipeline": (ranks, 1, 1)}[strategy.kind]
    if ranks == 1:
        return Mesh(1, 1, 1, sizes=sizes)
    return Mesh(*axes, strategy.schedule, strategy.rows, sizes, strategy.chunks)


def layout_of(strategy, mesh):
    return sharding_formulas.Layout(mesh_formulas.model_of(mesh.sizes), strategy.sharding, mesh.data)


def sent(strategy, mesh):
    """Returns the bytes that the busiest rank sends in a step."""
    if strategy.kind == "data" and mesh.data > 1:
        return sharding_formulas.sent(layout_of(strategy, mesh), 0, mesh_formulas.micro_batches(mesh))
    return max(mesh_formulas.sent(mesh, stage) for stage in range(mesh.pipeline))


def finished(compute, idle, exposed, rest, all_compute):
    """`all_compute`: the mean over the ranks."""
    total = compute + idle + exposed + rest
    return Predicted(total, exposed, idle, 1 - (all_compute + rest) / total)


def data_step(strategy, mesh, times, network):
    """Returns the seconds of data parallelism, sharded or not."""
    ranks, micro_batches = mesh.data, mesh_formulas.micro_batches(mesh)
    layout = layout_of(strategy, mesh)
    model, units = FLOAT * layout.whole, len(layout.units)
    forward, backward = times.forward, times.backward
    if strategy.sharding == "none":
        exposed = max(0, network.seconds("all_reduce", ranks, model, units) - backward)
    elif strategy.sharding == "parameters":
        exposed = micro_batches * gathered_exposed(layout, times, network)
    else:
        scatter = max(0, network.seconds("reduce_scatter", ranks, model, units) - backward)
        exposed = scatter * (1 if strategy.sharding == "optimizer" else micro_batches)
        exposed += max(0, network.seconds("all_gather", ranks, model, units) - forward)
    update = times.update / (1 if strategy.sharding == "none" else ranks)
    compute = micro_batches * (forward + backward) + update
    return finished(compute, 0, exposed + SMALL_SUMS * network.small_sum(ranks), times.rest, compute)


def gathered_exposed(layout, times, network):
    """Returns the exposed seconds of a micro-batch with `sharding: parameters`."""
    def gather(units):
        return sum(network.seconds("all_gather", layout.group, FLOAT * layout.count(unit)) for unit in units)

    first, last = layout.units[0], layout.units[-1]
    hidden = layout.units[1:] + ([first] if layout.is_tied else [])  # in forward: a tied head gathers it again
    backward = [unit for unit in layout.units if unit not in (first, last)]
    scatters = sum(network.seconds("reduce_scatter", layout.group, FLOAT * layout.count(unit)) for unit in layout.units)
    return (gather([first]) + max(0, gather(hidden) - times.forward) +
            max(0, gather(backward) + scatters - times.backward))


def parameters_share(mesh, stage):
    alone = Mesh(1, 1, 1, sizes=mesh.sizes)
    return mesh_formulas.parameter_bytes(mesh, stage) / mesh_formulas.parameter_bytes(alone, 0)


def tensor_step(mesh, times, network):
    """Returns the seconds of tensor parallelism, with `rows` of sequence parallelism."""
    ranks, layers, micro_batches = mesh.tensor, mesh.sizes.layers, mesh_formulas.micro_batches(mesh)
    bytes_ = mesh_formulas.activation(mesh)

    def times_of(operation, count):
        return network.seconds(operation, ranks, count * bytes_, count)

    if mesh.rows:
        sums = times_of("all_gather", LAYER_GATHERS * layers + 2)
        sums += times_of("reduce_scatter", LAYER_SCATTERS * layers + 2)
    else:
        sums = times_of("all_reduce", 4 * layers + 2)
    small = SMALL_SUMS + 3 * micro_batches
    small += mesh_formulas.NORM_TENSORS * layers + 2 if mesh.rows else 0
    exposed = micro_batches * sums + small * network.small_sum(ranks)
    compute = micro_batches * (times.forward + times.backward) / ranks + times.update * parameters_share(mesh, 0)
    return finished(compute, 0, exposed, times.rest, compute)


def stage_shares(mesh):
    """Returns the part of a micro-batch's computation that each stage has."""
    head = mesh_formulas.head_layers(mesh.sizes)
    layers = [mesh_formulas.layers_of(mesh, stage) for stage in range(mesh.pipeline)]
    layers[-1] += head
    return [count / (mesh.sizes.layers + head) for count in layers]


def idle_seconds(mesh, shares, times):
    """Returns how long the slowest stage waits for the others in a step."""
    if mesh.schedule == "pipedream":
        return 0.0
    seconds = times.forward + (times.backward if mesh.schedule != "zerobubble" else 0)
    return (sum(shares) - max(shares)) * seconds / mesh.chunks


def pipeline_step(mesh, times, network):
    """Returns the seconds of a pipeline."""
    stages, micro_batches = range(mesh.pipeline), mesh_formulas.micro_batches(mesh)
    shares = stage_shares(mesh)
    both = times.forward + times.backward
    compute = [micro_batches * both * share + times.update * parameters_share(mesh, stage)
               for stage, share in zip(stages, shares)]
    boundaries = mesh.pipeline * mesh.chunks - 1 if mesh.schedule != "pipedream" else 0
    exposed = 2 * boundaries * network.seconds("send", mesh.pipeline, mesh_formulas.activation(mesh))
    exposed += network.seconds("all_reduce", min(mesh.pipeline, 2), mesh_formulas.tied_bytes(mesh, 0))
    exposed += SMALL_SUMS * network.small_sum(mesh.pipeline)
    slowest = max(compute)
    return finished(slowest, idle_seconds(mesh, shares, times), exposed, times.rest, sum(compute) / mesh.pipeline)


def step(strategy, ranks, sizes, times, network):
    """Returns the seconds of a step of `sizes.samples` on a number of ranks."""
    mesh = mesh_of(strategy, ranks, sizes)
    if strategy.kind == "data":
        return data_step(strategy, mesh, times, network)
    return tensor_step(mesh, times, network) if strategy.kind == "tensor" else pipeline_step(mesh, times, network)
